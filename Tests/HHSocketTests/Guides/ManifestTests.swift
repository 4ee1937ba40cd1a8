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

    // MARK: Dependencies

    /// What each target depends on: the names of targets and products.
    private func dependencies() throws -> [String: Set<String>] {
        let manifest = try DocumentationPage("Package.swift").text
        let start = try #require(manifest.range(of: "\n    targets: [\n"))
        var found: [String: Set<String>] = [:]
        for target in manifest[start.lowerBound...].components(separatedBy: "\n        .") {
            guard let name = target.prefixMatch(of: /\w+\(\s*name: "([^"]+)"/)?.output.1,
                let start = target.range(of: "dependencies: [")
            else { continue }
            let rest = target[start.upperBound...]
            let end = try #require(rest.range(of: rest.hasPrefix("\n") ? "\n            ]" : "]"), "\(name)")
            let strings = rest[..<end.lowerBound].matches(of: /(\w+: )?"([^"]+)"/).map(\.output)
            found[String(name)] = Set(strings.filter { $0.1 != "package: " }.map { String($0.2) })
        }
        return found
    }

    /// What a target depends on, directly or through others.
    private func dependencies(below target: String) throws -> Set<String> {
        let dependencies = try self.dependencies()
        var found: Set<String> = []
        var waiting = [target]
        while let next = waiting.popLast() {
            for name in dependencies[next] ?? [] where found.insert(name).inserted { waiting.append(name) }
        }
        return found
    }

    /// What makes a client's connection is not linked into servers.
    @Test func serversDoNotDependOnTheClientsConnection() throws {
        let clients: Set = ["HHSocket", "HHSocketRPC", "HHSocketTransfers", "HHSocketSTOMP", "HHSocketApp"]
        for target in ["HHSocketLink", "HHSocketServer", "HHSocketServerTransfers", "HHSocketOperations"] {
            let below = try self.dependencies(below: target)
            #expect(below.isSuperset(of: ["HHSocketMessage", "NIOSSL"]), "\(target)")
            #expect(below.isDisjoint(with: clients), "\(target)")
        }
    }

    /// Transfers, monitoring and formats read from JSON are linked only into programs that import them.
    @Test func whatAnAppOrAServerLinks() throws {
        let all = Set(try self.folders(in: "Sources").compactMap { $0.split(separator: "/").last.map { String($0) } })
            .subtracting(["CNetlink", "CZlib"])
        let ground: Set = ["CHHSocket", "HHSocketFoundation", "HHSocketSystem", "HHSocketMessage", "HHSocketLink"]
        let app = try self.dependencies(below: "HHSocketRPC").intersection(all)
        #expect(app == ground.union(["HHSocket"]))
        let server = try self.dependencies(below: "HHSocketServer").intersection(all)
        #expect(server == ground)
        #expect(try self.dependencies().values.allSatisfy { !$0.contains("NIOHTTP1") })
    }

    private func folders(in folder: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: packageFolder.appendingPathComponent(folder).path)
            .sorted().map { "\(folder)/\($0)" }
    }
}
