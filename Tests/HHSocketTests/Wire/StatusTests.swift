// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import TestSupport
import Testing

/// The table of statuses that the server, the client and the outbox share.
@Suite struct StatusTests {
    private struct Row: Hashable {
        var number: UInt32
        var name: String
        var mayHaveBeenExecuted: Bool
        var isKept: Bool
        var isTransient: Bool
    }

    /// The table of `Docs/Protocol.md`.
    private func documentedRows() throws -> [Row] {
        let page = try DocumentationPage("Docs/Protocol.md").text
        let section = try #require(page.components(separatedBy: "### Statuses\n").last)
        let lines = section.split(separator: "\n").drop { !$0.hasPrefix("|") }.prefix { $0.hasPrefix("|") }
        let header = try #require(lines.first)
        #expect(header == "| status | name | executed | kept | transient | meaning |")
        return try lines.dropFirst(2).map { line in
            let cells = line.split(separator: "|").map { $0.trimmingCharacters(in: CharacterSet(charactersIn: " *")) }
            try #require(cells.count >= 5, "\(line)")
            let answers = try cells[2...4].map { cell in
                try #require(cell == "yes" || cell == "no", "\(cell) in \(line)")
                return cell == "yes"
            }
            return Row(
                number: try #require(UInt32(cells[0])),
                name: cells[1],
                mayHaveBeenExecuted: answers[0],
                isKept: answers[1],
                isTransient: answers[2]
            )
        }
    }

    /// The names and numbers that the source declares.
    private func declaredStatuses() throws -> [UInt32: String] {
        let file = packageFolder.appendingPathComponent("Sources/HHSocketLink/Wire/Status.swift")
        let source = try String(contentsOf: file, encoding: .utf8)
        let declarations = source.matches(of: /(?:public|package) static let (\w+) = Status\(rawValue: (\d+)\)/)
        return Dictionary(
            try declarations.map { (try #require(UInt32($0.2)), String($0.1)) },
            uniquingKeysWith: { first, _ in first }
        )
    }

    @Test func documentedTableIsTheOneInUse() throws {
        let rows = try self.documentedRows()
        for row in rows {
            let status = Status(rawValue: row.number)
            let inUse = Row(
                number: row.number,
                name: row.name,
                mayHaveBeenExecuted: status.mayHaveBeenExecuted,
                isKept: status.isKept,
                isTransient: status.isTransient
            )
            #expect(row == inUse)
        }
        // A ping's status is no answer's.
        let declared = try self.declaredStatuses().filter { $0.key != Status.ping.rawValue }
        #expect(declared.count > 10)
        #expect(Dictionary(rows.map { ($0.number, $0.name) }, uniquingKeysWith: { first, _ in first }) == declared)
    }

    @Test(arguments: [0, 1, 199, 201, 299, 400, 418, 499, 500, 502, 777, 1_000_000, .max] as [UInt32])
    func unlistedStatusIsExecutedKeptAndFinal(number: UInt32) {
        let status = Status(rawValue: number)
        #expect(status.mayHaveBeenExecuted)
        #expect(status.isKept)
        #expect(!status.isTransient)
    }

    @Test func errorsSayOfAnAnswerWhatTheTableSays() {
        for number in 1...1_000 as ClosedRange<UInt32> where number != Status.ok.rawValue {
            let status = Status(rawValue: number)
            let code = SocketError.Code(status)
            let answered = SocketError(code, message: "", delivery: .answered)
            #expect(answered.notExecuted == !status.mayHaveBeenExecuted)
            #expect(!SocketError(code, message: "", delivery: .sentUnknown).notExecuted)
            #expect(SocketError(code, message: "", delivery: .notSent).notExecuted)
        }
    }
}
