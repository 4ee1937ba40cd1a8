// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// All places that name the required Swift version agree. Builds with exactly that version show that it suffices.
@Suite struct ManifestTests {
    private func version(in path: String, after words: String) throws -> String {
        let text = try DocumentationPage(path).text
        let range = try #require(text.range(of: words), "\(path) does not say \(words)")
        return String(text[range.upperBound...].prefix { $0.isNumber || $0 == "." })
    }

    @Test func everyPlaceNamesTheSameSwift() throws {
        let needed = try self.version(in: "Package.swift", after: "// swift-tools-version: ")
        #expect(!needed.isEmpty)
        for manifest in [
            "Benchmarks", "Conformance", "Examples/App", "Examples/Greeter", "Examples/Notices", "Fuzz",
            "Tests/PluginFixture",
        ] {
            #expect(try self.version(in: "\(manifest)/Package.swift", after: "// swift-tools-version: ") == needed)
        }
        #expect(try self.version(in: "Scripts/install-dependencies", after: "oldest_swift=") == needed)
        #expect(try self.version(in: "Dockerfile", after: "FROM swift:") == needed)
        for workflow in ["api", "docs", "linux"] {
            #expect(try self.version(in: ".github/workflows/\(workflow).yml", after: "swift:") == needed)
        }
        #expect(try DocumentationPage("README.md").text.contains("Swift \(needed)"))
    }
}
