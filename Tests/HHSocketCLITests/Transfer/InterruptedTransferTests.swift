// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import TestSupport
import Testing

@testable import HHSocketCLI

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// `put` and `get` over a link that breaks, while they and their servers are killed, stopped and restarted.
@Suite(.tags(.io), .timeLimit(.minutes(10))) struct InterruptedTransferTests {
    private struct Setup {
        let folder: TemporaryFolder
        let content: Data
        let source: String

        init(size: Int, seed: UInt64 = 1) throws {
            self.folder = try TemporaryFolder()
            var generator = SeededGenerator(seed: seed)
            self.content = Data(generator.bytes(size))
            self.source = self.folder.file("source")
            try self.content.write(to: URL(fileURLWithPath: self.source))
        }

        func serve() async throws -> (Command, Endpoint) {
            let server = try Command(["serve", "--port", "0", "--store", self.folder.file("store")])
            let line = try #require(try await server.lines().first)
            let address = try #require(line.split(separator: " ").last)
            return (server, try #require(Endpoint(address)))
        }

        func read(_ name: String) throws -> Data {
            try Data(contentsOf: URL(fileURLWithPath: self.folder.file(name)))
        }

        /// The length of the unfinished content: the longest file in a folder whose name has the prefix.
        func unfinished(_ path: String, prefix: String = "") -> Int {
            let folder = self.folder.file(path)
            let names = (try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []
            return names.filter { $0.hasPrefix(prefix) }
                .map { name in
                    let values = try? FileManager.default.attributesOfItem(atPath: "\(folder)/\(name)")
                    return (values?[.size] as? NSNumber)?.intValue ?? 0
                }
                .max() ?? 0
        }
    }

    /// The number of bytes after which each connection is lost.
    private static func random(_ number: Int, _ range: Range<Int>) -> Int {
        var generator = SeededGenerator(seed: UInt64(number) &+ 7)
        return Int.random(in: range, using: &generator)
    }

    @Test func bothProcessesAreKilledAtRandom() async throws {
        let setup = try Setup(size: 24_000_000)
        var (server, endpoint) = try await setup.serve()
        let link = try await CuttingRelay(to: endpoint) { number in
            CuttingRelay.Allowance(
                up: Self.random(number, 500_000..<3_000_000),
                down: Self.random(number + 1_000, 500_000..<3_000_000)
            )
        }
        var generator = SeededGenerator(seed: 5)
        for arguments in [
            ["put", setup.source, "\(link.endpoint)", "--id", "a"],
            ["get", "\(link.endpoint)", "a", setup.folder.file("copy")],
        ] {
            let isPut = arguments[0] == "put"
            var outcome: Command.Outcome?
            var kills = 0
            while outcome == nil {
                let command = try Command(arguments)
                defer { command.signal(SIGKILL) }
                let before = isPut ? setup.unfinished("store/+unfinished") : setup.unfinished("", prefix: ".hhsocket")
                let goal = before + Int.random(in: 500_000..<4_000_000, using: &generator)
                let killsServer = Bool.random(using: &generator)
                let ended = OutcomeBox()
                let waiting = Task {
                    let outcome = try await command.outcome()
                    ended.set(outcome)
                }
                try await eventually("progress, or the end") {
                    ended.value != nil
                        || (isPut ? setup.unfinished("store/+unfinished") : setup.unfinished("", prefix: ".hhsocket"))
                            >= goal
                }
                if kills < 6, ended.value == nil {
                    kills += 1
                    if killsServer {
                        server.signal(SIGKILL)
                        _ = try await server.outcome()
                        (server, endpoint) = try await setup.serve()
                        link.lead(to: endpoint)
                    }
                    command.signal(SIGKILL)
                } else if ended.value == nil {
                    try await waiting.value
                }
                try await waiting.value
                if let end = ended.value, end.exitCode != 128 + SIGKILL { outcome = end }
            }
            if outcome?.exitCode != 0 {
                server.signal(SIGTERM)
                Issue.record("the client: \(String(describing: outcome)), the server: \(try await server.outcome())")
                return
            }
            #expect(kills >= 2)
        }
        #expect(try setup.read("store/a") == setup.content)
        #expect(try setup.read("copy") == setup.content)
        // Each process repeats at most the content in transit, and its cut connections lose some more.
        #expect(link.bytesUp < 24_000_000 + link.connectionCount * 3_000_000)
        let names = try FileManager.default.contentsOfDirectory(atPath: setup.folder.file("store"))
        #expect(names.filter { !$0.hasPrefix("+") } == ["a"])
        server.signal(SIGTERM)
        #expect(try await server.outcome().exitCode == 0)
    }

    @Test(arguments: [SIGINT, SIGTERM])
    func aSignalKeepsWhatWasTransferred(signal: CInt) async throws {
        let setup = try Setup(size: 8_000_000)
        let (server, endpoint) = try await setup.serve()
        // The first connection carries some bytes, and others none, until the command has ended.
        let few = { @Sendable (number: Int) in
            CuttingRelay.Allowance(up: number == 0 ? 2_000_000 : 1, down: number == 0 ? .max : 1)
        }
        let up = try await CuttingRelay(to: endpoint, allow: few)
        let put = try Command(["put", setup.source, "\(up.endpoint)", "--id", "a"])
        try await eventually("an unfinished file") { setup.unfinished("store/+unfinished") >= 1_000_000 }
        put.signal(signal)
        let stopped = try await put.outcome()
        #expect(stopped.exitCode == 1 && stopped.output.isEmpty, "\(stopped)")
        #expect(stopped.errors.hasPrefix("error: cancelled: "), "\(stopped)")
        let kept = setup.unfinished("store/+unfinished")
        #expect(kept >= 1_000_000)

        let rest = try await CuttingRelay(to: endpoint)
        let again = try await Command.run(["put", setup.source, "\(rest.endpoint)", "--id", "a"])
        #expect(again.exitCode == 0 && again.text == "a\n" && again.errors == "", "\(again)")
        #expect(try setup.read("store/a") == setup.content)
        #expect(rest.bytesUp < 8_000_000 - 900_000)

        let down = try await CuttingRelay(to: endpoint) { number in
            CuttingRelay.Allowance(up: number == 0 ? .max : 1, down: number == 0 ? 2_000_000 : 1)
        }
        let get = try Command(["get", "\(down.endpoint)", "a", setup.folder.file("copy")])
        try await eventually("a part") { setup.unfinished("", prefix: ".hhsocket") >= 1_000_000 }
        get.signal(signal)
        #expect(try await get.outcome().errors.hasPrefix("error: cancelled: "))
        #expect(!FileManager.default.fileExists(atPath: setup.folder.file("copy")))
        let last = try await CuttingRelay(to: endpoint)
        let whole = try await Command.run(["get", "\(last.endpoint)", "a", setup.folder.file("copy")])
        #expect(whole.exitCode == 0, "\(whole)")
        #expect(try setup.read("copy") == setup.content)
        #expect(last.bytesDown < 8_000_000 - 900_000)
        #expect(setup.unfinished("", prefix: ".hhsocket") == 0)
        server.signal(SIGTERM)
        #expect(try await server.outcome().exitCode == 0)
    }

    /// What the system behind the relay takes in, and does not pass on, is no progress: it would be with each opening
    /// on a new connection. The timeout, of two seconds, is real.
    @Test func aLinkThatPassesNothingOnIsATimeout() async throws {
        let setup = try Setup(size: 16_000_000)
        let (server, endpoint) = try await setup.serve()
        // Connections after the first carry hello and its answer.
        let link = try await CuttingRelay(to: endpoint) { number in
            CuttingRelay.Allowance(up: number == 0 ? 2 << 20 : 1, stalls: true)
        }
        let put = try await Command.run(["put", setup.source, "\(link.endpoint)", "--id", "a", "--timeout", "2s"])
        #expect(put.exitCode == 1 && put.errors.hasPrefix("error: stalled: "), "\(put)")
        // Each that moves nothing is left after a third of the timeout.
        #expect(link.connectionCount <= 5)
        link.cut()
        let rest = try await CuttingRelay(to: endpoint)
        let again = try await Command.run(["put", setup.source, "\(rest.endpoint)", "--id", "a"])
        #expect(again.exitCode == 0 && again.text == "a\n", "\(again)")
        #expect(try setup.read("store/a") == setup.content)
        server.signal(SIGTERM)
        #expect(try await server.outcome().exitCode == 0)
    }

    @Test func changedContentIsReported() async throws {
        let setup = try Setup(size: 8_000_000)
        let (server, endpoint) = try await setup.serve()
        let few = { @Sendable (number: Int) in CuttingRelay.Allowance(up: number == 0 ? 2_000_000 : 1) }
        let link = try await CuttingRelay(to: endpoint, allow: few)
        let put = try Command(["put", setup.source, "\(link.endpoint)", "--id", "a"])
        try await eventually("an unfinished file") { setup.unfinished("store/+unfinished") >= 1_000_000 }
        put.signal(SIGKILL)
        _ = try await put.outcome()
        let other = try Setup(size: 3_000_000, seed: 2)
        let second = try await Command.run(["put", other.source, "\(endpoint)", "--id", "a"])
        #expect(second.exitCode == 0 && second.text == "a\n" && second.errors == "changed\n", "\(second)")
        #expect(try setup.read("store/a") == other.content)

        // The file that a get has begun is no longer in the store.
        let down = try await CuttingRelay(to: endpoint) { CuttingRelay.Allowance(down: $0 == 0 ? 2_000_000 : 1) }
        let get = try Command(["get", "\(down.endpoint)", "a", setup.folder.file("copy")])
        try await eventually("a part") { setup.unfinished("", prefix: ".hhsocket") >= 1_000_000 }
        get.signal(SIGKILL)
        _ = try await get.outcome()
        _ = try await Command.run(["put", setup.source, "\(endpoint)", "--id", "a"])
        let whole = try await Command.run(["get", "\(endpoint)", "a", setup.folder.file("copy")])
        #expect(whole.exitCode == 0 && whole.output.isEmpty && whole.errors == "changed\n", "\(whole)")
        #expect(try setup.read("copy") == setup.content)
        #expect(setup.unfinished("", prefix: ".hhsocket") == 0)
        server.signal(SIGTERM)
        #expect(try await server.outcome().exitCode == 0)
    }

    /// Bytes written to standard output cannot be taken back.
    @Test func standardOutputEndsWithAnErrorWhereTheFileWasReplaced() async throws {
        let setup = try Setup(size: 8_000_000)
        let (server, endpoint) = try await setup.serve()
        _ = try await Command.run(["put", setup.source, "\(endpoint)", "--id", "a"])
        let link = try await CuttingRelay(to: endpoint) { CuttingRelay.Allowance(down: $0 == 0 ? 2_000_000 : 1) }
        let get = try Command(["get", "\(link.endpoint)", "a", "-"])
        try await eventually("another connection") { link.connectionCount > 1 }
        let other = try Setup(size: 3_000_000, seed: 2)
        _ = try await Command.run(["put", other.source, "\(endpoint)", "--id", "a"])
        link.allow { _ in .unlimited }
        let outcome = try await get.outcome()
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors.contains("error: sourceChanged: "), "\(outcome.errors)")
        #expect(outcome.output.count > 1_000_000 && setup.content.starts(with: outcome.output))
        server.signal(SIGTERM)
        #expect(try await server.outcome().exitCode == 0)
    }

    @Test func aSecondWriterEndsTheFirst() async throws {
        let setup = try Setup(size: 20_000_000)
        let other = try Setup(size: 3_000_000, seed: 2)
        let (server, endpoint) = try await setup.serve()
        let link = try await CuttingRelay(to: endpoint) { _ in CuttingRelay.Allowance(up: 400_000) }
        let first = try Command(["put", setup.source, "\(link.endpoint)", "--id", "a"])
        try await eventually("an unfinished file") { setup.unfinished("store/+unfinished") >= 128 << 10 }
        let second = try await Command.run(["put", other.source, "\(endpoint)", "--id", "a"])
        #expect(second.exitCode == 0 && second.text == "a\n", "\(second)")
        let outcome = try await first.outcome()
        #expect(outcome.exitCode == 1 && outcome.output.isEmpty, "\(outcome)")
        #expect(outcome.errors.hasPrefix("error: superseded: "), "\(outcome)")
        #expect(try setup.read("store/a") == other.content)
        server.signal(SIGTERM)
        #expect(try await server.outcome().exitCode == 0)
    }
}

/// A value that a task sets.
private final class OutcomeBox: Sendable {
    private let state = Watched<Command.Outcome?>(nil)

    var value: Command.Outcome? { self.state.current }
    func set(_ value: Command.Outcome) { self.state.withLockedValue { $0 = value } }
}
