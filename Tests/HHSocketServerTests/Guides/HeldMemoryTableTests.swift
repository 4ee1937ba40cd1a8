// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

@testable import HHSocketServer

/// The table of `Docs/Internals.md` that lists what peers make a process hold, as far as the sources can show that
/// it is complete.
@Suite struct HeldMemoryTableTests {
    private struct Row {
        var resource: String
        var owner: String
        var charge: String
        var limit: String
        var file: String
    }

    private static let section = "What peers make us hold"

    private func rows() throws -> [Row] {
        try DocumentationPage("Docs/Internals.md", section: Self.section).text.split(separator: "\n")
            .filter { $0.hasPrefix("| ") && $0.hasSuffix(" |") }
            .dropFirst()
            .map { $0.dropFirst(2).dropLast(2).components(separatedBy: " | ") }
            .map { cells in
                try #require(cells.count == 5, "\(cells)")
                return Row(resource: cells[0], owner: cells[1], charge: cells[2], limit: cells[3], file: cells[4])
            }
    }

    /// The names in backticks.
    private static func names(_ cell: String) -> [String] {
        cell.matches(of: /`([^`]+)`/).map { String($0.output.1) }
    }

    private static func sources(under folder: String) throws -> [(path: String, text: String)] {
        let root = packageFolder.appendingPathComponent(folder)
        let paths = FileManager.default.enumerator(atPath: root.path)?.compactMap { $0 as? String } ?? []
        return try paths.filter { $0.hasSuffix(".swift") }.sorted().map { path in
            (folder + "/" + path, try String(contentsOf: root.appendingPathComponent(path), encoding: .utf8))
        }
    }

    private static func sources() throws -> [(path: String, text: String)] {
        try ["HHSocketServer", "HHSocketServerTransfers", "HHSocketLink", "HHSocket"]
            .flatMap { try self.sources(under: "Sources/\($0)") }
    }

    @Test func everyRowNamesAFileThatHasItsOwnerAndItsCharge() throws {
        let rows = try self.rows()
        #expect(rows.count > 15)
        for row in rows {
            let files = Self.names(row.file)
            #expect(!files.isEmpty, "\(row.resource)")
            let text = try files.map { try DocumentationPage($0).text }.joined()
            let owners = Self.names(row.owner)
            #expect(!owners.isEmpty, "\(row.resource) has no owner")
            for name in owners + Self.names(row.charge) {
                let last = name.split(separator: ".").last.map(String.init) ?? name
                #expect(text.contains(last), "\(row.resource): \(files) do not have \(name)")
            }
        }
    }

    /// A limit is one of the configuration's, or a constant of the row's file.
    @Test func everyLimitExists() throws {
        let settings = Set(
            Mirror(reflecting: ServerLimits()).children.compactMap(\.label)
                + Mirror(reflecting: StrangerLimits()).children.compactMap(\.label)
        )
        for row in try self.rows() {
            let text = try Self.names(row.file).map { try DocumentationPage($0).text }.joined()
            let names = Self.names(row.limit)
            #expect(!names.isEmpty, "\(row.resource) has no limit")
            for name in names {
                let last = name.split(separator: ".").last.map(String.init) ?? name
                #expect(settings.contains(last) || text.contains(last), "\(row.resource): there is no \(name)")
            }
        }
    }

    /// All places that charge an account, and all costs, have rows.
    @Test func everyChargeHasARow() throws {
        let rows = try self.rows()
        let files = Set(rows.flatMap { Self.names($0.file) })
        let charging = try Self.sources()
            .filter { $0.text.contains(/(load|account\?|account|self)\.held\(|setStandingBytes\(|\bHold\(/) }
            .map(\.path)
            .filter { !$0.contains("/Ledger/") && !$0.hasSuffix("/Link/Hold.swift") }
        #expect(charging.count > 5)
        for path in charging { #expect(files.contains(path), "\(path) charges something that has no row") }

        let costs = try DocumentationPage("Sources/HHSocketServer/Ledger/ConnectionCost.swift").text
            .matches(of: /static let ([a-zA-Z]+) =/).map { String($0.output.1) }
        #expect(costs.count > 5)
        let named = Set(rows.flatMap { Self.names($0.charge) + Self.names($0.limit) })
        for cost in costs { #expect(named.contains("ConnectionCost.\(cost)"), "ConnectionCost.\(cost) has no row") }
        for name in named where name.hasPrefix("ConnectionCost.") {
            #expect(costs.contains(String(name.dropFirst("ConnectionCost.".count))), "there is no \(name)")
        }
    }

    /// Everyone who can be made to release memory, and everyone who is charged, owns a row.
    @Test func everyHolderOwnsARow() throws {
        let owners = Set(try self.rows().flatMap { Self.names($0.owner) })
        let sources = try Self.sources()
        let declaration = /(?:class|extension|struct) ([A-Za-z]+)[^{\n]*: [^{\n]*(?:LedgerHolder|LinkAccount)\b/
        let holders = sources.flatMap { $0.text.matches(of: declaration).map { String($0.output.1) } }
        #expect(holders.count >= 2)
        for holder in holders { #expect(owners.contains(holder), "\(holder) owns no row") }
    }

    /// Every limit on bytes or on numbers is the limit of a row, or bounds rates, times or lengths.
    @Test func everyLimitOfTheConfigurationBoundsARow() throws {
        let named = Set(try self.rows().flatMap { Self.names($0.limit) })
        // These bound no memory by themselves.
        let others: Set = [
            "connectionRatePerAddress", "minimumSilence", "idleTimeout", "firstFrameTimeout", "handlerTimeout",
            "cancelRate", "requestRate", "requestRatePerAddress", "requestRatePerIdentity",
            "unproductiveFrameRate", "strangers", "concurrency", "maximumAnswerLength", "maximumCorruptRun",
            "readStallTimeout", "minimumReadRate", "writeStallTimeout", "slowClients",
        ]
        for limit in Mirror(reflecting: ServerLimits()).children.compactMap(\.label) where !others.contains(limit) {
            #expect(named.contains(limit), "\(limit) bounds no row")
        }
    }
}
