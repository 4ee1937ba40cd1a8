// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

@testable import HHSocketServer

/// The lists of `Operations.md` are complete.
@Suite struct OperationsGuideTests {
    private let page: DocumentationPage

    init() throws {
        self.page = try DocumentationPage(guide: "Operations")
    }

    /// The code in the first cells of a table's rows.
    private func entries(under heading: String) throws -> Set<String> {
        let section = try #require(self.page.text.components(separatedBy: "\n\(heading)\n").dropFirst().first)
        let rows = section.components(separatedBy: "\n##")[0].components(separatedBy: "\n").filter {
            $0.hasPrefix("| `")
        }
        return Set(rows.compactMap { $0.split(separator: "`").dropFirst().first.map(String.init) })
    }

    @Test func everyLimitHasARowThatSaysWhatTheClientReceives() throws {
        // These cannot be set by an application: the page has them among the further limits, in words.
        let fixed: Set = [
            "maximumHandshakes", "firstFrameTimeout", "unproductiveFrameRate", "maximumCorruptRun", "minimumReadRate",
            "kernelSendBuffer",
        ]
        let all = Mirror(reflecting: ServerLimits()).children.compactMap(\.label)
        #expect(fixed.isSubset(of: all))
        let limits = all.filter { !fixed.contains($0) }
        #expect(limits.count > 10)
        let rows = try self.entries(under: "## Limits")
        for limit in limits { #expect(rows.contains(limit), "no row for \(limit)") }
    }

    @Test func everyCounterHasARow() throws {
        let rows = try self.entries(under: "### Counters")
        #expect(rows.subtracting(["hhsocket.server.…"]) == Set(ServerCounter.allCases.map(\.name)))
    }

    /// Names from the sources, including those of counters without a list.
    @Test(arguments: [
        "Sources/HHSocket/Observing/ConnectionMetrics.swift",
        "Sources/HHSocketRPC/Observing/CallMetrics.swift",
        "Sources/HHSocketServer/Observing/ServerMetrics.swift",
        "Sources/HHSocketServer/Middleware/MetricsMiddleware.swift",
    ])
    func everyOtherMetricIsNamed(file: String) throws {
        let source = try String(contentsOf: packageFolder.appendingPathComponent(file), encoding: .utf8)
        let names = source.matches(of: /"(hhsocket\.[a-z_.]*[a-z])"/).map { String($0.output.1) }
        #expect(!names.isEmpty)
        for name in names { #expect(self.page.text.contains("`\(name)`"), "\(name) of \(file) is missing") }
    }

    @Test func everyCounterOfCallsIsNamed() throws {
        let file = "Sources/HHSocketRPC/Observing/CallMetrics.swift"
        let source = try String(contentsOf: packageFolder.appendingPathComponent(file), encoding: .utf8)
        let names = source.matches(of: /\(\\\.[a-zA-Z]+, "([a-z_]+)"\)/).map { String($0.output.1) }
        #expect(names.count >= 7)
        for name in names { #expect(self.page.text.contains("`hhsocket.\(name)`"), "\(name) is missing") }
    }

    @Test func everyMessageOfTheLogHasARow() throws {
        let files = try ["HHSocketServer", "HHSocketServerTransfers"].flatMap { module in
            let folder = packageFolder.appendingPathComponent("Sources/\(module)")
            return try #require(FileManager.default.enumerator(at: folder, includingPropertiesForKeys: nil))
                .compactMap { $0 as? URL }
        }
        var messages: Set<String> = []
        for file in files where file.pathExtension == "swift" {
            let source = try String(contentsOf: file, encoding: .utf8)
            let calls = source.matches(
                of:
                    /(?:logger\.[a-z]+|self\.log|[lL]og\.(?:write|announce))\(\s*(?:level: self\.level,\s*|\.[a-z]+,\s*)?"([^"\\]+)"/
            )
            messages.formUnion(calls.map { String($0.output.1) })
        }
        #expect(messages.count >= 11)
        for message in messages { #expect(self.page.text.contains("| \(message) |"), "\"\(message)\" is missing") }
    }
}
