// SPDX-License-Identifier: Apache-2.0
#if Outbox
import Foundation
import HHSocketRPC
import HHSocketServer
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketOutbox

/// The messages that a server has run, in order.
private final class Ledger: Sendable {
    struct Line: Sendable {
        var topic: Int
        var number: Int
        var key: String
    }

    private let box = NIOLockedValueBox<[Line]>([])

    func run(_ body: String, _ key: String) {
        let words = body.split(separator: " ").compactMap { Int($0) }
        self.box.withLockedValue {
            $0.append(Line(topic: words.first ?? -1, number: words.last ?? -1, key: key))
        }
    }

    var lines: [Line] { self.box.withLockedValue { $0 } }
}

/// Delivery by an app that dies repeatedly, at random moments, over a network that loses answers.
@Suite(.tags(.io), .timeLimit(.minutes(10))) struct CrashTests {
    private static let topics = 4
    private static let messagesPerRound = 200

    private static func child(_ arguments: [String]) throws -> Command {
        try Command(arguments, of: Command.executable("outbox-crash-child"))
    }

    /// Runs `rounds` processes, which are killed, and then one to its end.
    ///
    /// - Returns: The messages promised to the app, and those that the server has run.
    private func crash(
        rounds: Int,
        seed: UInt64
    ) async throws -> (promised: [String: String], lines: [Ledger.Line], repeats: Int) {
        var generator = SeededGenerator(seed: seed)
        let ledger = Ledger()
        var router = Router()
        router.handle(130) { request, context in
            ledger.run(String(buffer: request.body), context.idempotencyKey ?? "no key")
            return ByteBuffer(string: "done")
        }
        var configuration = SocketServer.Configuration()
        configuration.hello.idempotency.lifetime = .seconds(3_600)
        configuration.hello.idempotency.maximumCount = 1_000_000
        configuration.hello.idempotency.maximumBytes = 1 << 30
        // All clients come from one address, and have no identity.
        configuration.hello.idempotency.addressShare = 1
        let server = SocketServer(configuration: configuration, router: router)
        try await server.start()
        let folder = try TemporaryFolder()
        let cutter = try await Cutter(before: #require(server.address), seed: seed &+ 1)
        defer { cutter.close() }
        let port = "\(cutter.port)"
        // The promised messages: "topic number", and the key.
        var promised: [String: String] = [:]
        func take(_ lines: [String]) {
            for line in lines {
                let words = line.split(separator: " ")
                guard words.count == 4, words[0] == "promised" else {
                    if line.hasPrefix("failed") { Issue.record("seed \(seed): \(line)") }
                    continue
                }
                promised["\(words[1]) \(words[2])"] = String(words[3])
            }
        }
        var sizes: [Int] = []
        for round in 0..<rounds {
            let child = try Self.child([
                folder.outbox, port, "\(round * Self.messagesPerRound)", "\(Self.messagesPerRound)", "\(Self.topics)",
            ])
            // Some processes die while they open the file, most while they work.
            if Int.random(in: 0..<5, using: &generator) > 0 {
                _ = try await child.lines()
            }
            try await Task.sleep(for: .microseconds(Int.random(in: 0...60_000, using: &generator)))
            child.signal(SIGKILL)
            let lines = try await child.outcome().wholeLines
            take(lines)
            if let up = lines.first, up.hasPrefix("up"), let size = Int(up.dropFirst(3)) { sizes.append(size) }
        }
        // The last process is not killed.
        let last = try await Self.child([folder.outbox, port, "0", "0", "\(Self.topics)"]).outcome()
        #expect(last.lines.last == "drained", "seed \(seed)")
        print(
            """
            \(rounds) rounds, seed \(seed): \(promised.count) messages promised, \(ledger.lines.count) run, \(cutter.cuts) \
            connections cut, \(server.statistics[.idempotentRepeats]) repeats answered from its memory; at most \
            \(sizes.max() ?? 0) were left for the next process, in \(sizes.filter { $0 > 0 }.count) of \(sizes.count) starts some
            """
        )
        let repeats = Int(server.statistics[.idempotentRepeats])
        await server.shutdown(gracePeriod: .zero)
        return (promised, ledger.lines, repeats)
    }

    @Test func nothingIsLostOrExecutedTwiceAndTheOrderIsKept() async throws {
        let seed = UInt64(number("HHSOCKET_SEED", or: Int.random(in: 1...1_000_000)))
        let (promised, lines, repeats) = try await self.crash(
            // More rounds would exceed the time limit: each starts a process, and the last one sends all remaining
            // messages.
            rounds: number("HHSOCKET_CRASHES", or: min(scaled(50), 1_000)),
            seed: seed
        )
        // No message was lost.
        let run = Dictionary(lines.map { ("\($0.topic) \($0.number)", $0.key) }) { first, _ in first }
        let lost = promised.filter { run[$0.key] != $0.value }
        #expect(lost.isEmpty, "seed \(seed): lost \(lost.prefix(10))")
        #expect(!promised.isEmpty)
        // No message was run twice.
        let counts = Dictionary(lines.map { ($0.key, 1) }, uniquingKeysWith: +)
        let twice = counts.filter { $0.value > 1 }
        #expect(twice.isEmpty, "seed \(seed): run twice \(twice.prefix(10))")
        #expect(counts["no key"] == nil)
        // The messages of each topic were run in order.
        for topic in 0..<Self.topics {
            let numbers = lines.filter { $0.topic == topic }.map(\.number)
            #expect(
                zip(numbers, numbers.dropFirst()).allSatisfy { $0 < $1 },
                "seed \(seed): topic \(topic) is out of order"
            )
        }
        // The network did lose answers.
        #expect(repeats > 0, "seed \(seed): no answer was lost")
    }
}
#endif
