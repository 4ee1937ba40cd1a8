// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// Manifests agree with one another and with the sources.
@Suite struct ManifestTests {
    private func version(in path: String, after words: String) throws -> String {
        let text = try DocumentationPage(path).text
        let range = try #require(text.range(of: words), "\(path) does not say \(words)")
        return String(text[range.upperBound...].prefix { $0.isNumber || $0 == "." })
    }

    /// Builds with exactly the version that all places name show that it suffices.
    @Test func everyFileNamesTheSameSwift() throws {
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

    /// Which import `MemberImportVisibility` requires for the C library's structures differs from build to build.
    @Test func modulesThatImportTheCLibraryAreBuiltWithoutMemberImportVisibility() throws {
        let manifest = try DocumentationPage("Package.swift").text
        let start = try #require(manifest.range(of: "usersOfTheCLibrary: Set = ["))
        let listed = manifest[start.upperBound...].prefix { $0 != "]" }
        var found = 0
        for folder in try ["Sources", "Outbox/Sources"].flatMap(self.folders) + ["Tests/TestSupport"] {
            let url = packageFolder.appendingPathComponent(folder)
            let files = try #require(FileManager.default.enumerator(at: url, includingPropertiesForKeys: nil))
            let imports = try files.compactMap { $0 as? URL }.contains { file in
                guard file.pathExtension == "swift", !file.path.contains(".docc/") else { return false }
                return try String(contentsOf: file, encoding: .utf8).contains("import HHSocketSystem")
            }
            guard imports else { continue }
            found += 1
            #expect(listed.contains("\"\(url.lastPathComponent)\""), "\(folder)")
        }
        #expect(found > 5)
        // It compiles the same sources.
        #expect(!(try DocumentationPage("Fuzz/Package.swift").text.contains("MemberImportVisibility")))
    }

    private func folders(in folder: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: packageFolder.appendingPathComponent(folder).path)
            .sorted().map { "\(folder)/\($0)" }
    }
}
