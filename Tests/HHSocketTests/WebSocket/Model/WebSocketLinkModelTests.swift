// SPDX-License-Identifier: Apache-2.0
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// A whole `WebSocketLink` in virtual time, in random histories: no message is lost silently, duplicated or out of
/// order; each has one outcome, and the right one; there are never two connections; every wait is bounded.
///
/// 400 times `HHSOCKET_EFFORT`; `make soak` runs 20,000.
@Suite struct WebSocketLinkModelTests {
    @Test func everyHistoryKeepsThePromises() async {
        let broken = await onItsOwnThread { () -> String? in
            for seed in 0..<UInt64(scaled(400)) {
                let script = LinkHistory.script(seed: seed)
                guard let broken = LinkHistory.run(script, seed: seed) else { continue }
                let (short, promise) = shortened(script, broken) { LinkHistory.run($0, seed: seed) }
                return "seed \(seed): \(promise); shortened to \(short.count) steps:\n\(short)"
            }
            return nil
        }
        if let broken { Issue.record("\(broken)") }
    }

    /// Checks that the harness can fail: each of these has a fault in one place, which must be detected.
    @Test(arguments: 0..<6)
    func worldThatExpectsSomethingElseIsFoundOut(number: Int) async {
        let found = await onItsOwnThread {
            let flaws: [(inout LinkWorldSettings) -> Void] = [
                { $0.expectedWaiting = $0.maximumWaiting - 1 }, { $0.expectedWaiting = $0.maximumWaiting + 1 },
                { $0.patience = 2 }, { $0.ignoresEachTenth = true }, { $0.expectedCap = 1 },
                { $0.expectsReason = false },
            ]
            return (0..<UInt64(600)).lazy.compactMap { seed -> Int? in
                let script = LinkHistory.script(seed: seed)
                guard let broken = LinkHistory.run(script, seed: seed, flaw: flaws[number]),
                    LinkHistory.run(script, seed: seed) == nil
                else { return nil }
                return shortened(script, broken) { LinkHistory.run($0, seed: seed, flaw: flaws[number]) }.0.count
            }.first
        }
        #expect((found ?? .max) <= 12)
    }

    /// Input has no end, and each message without room is rejected immediately.
    @Test(arguments: [2, 3, 13] as [UInt64], 0..<5)
    func waitingIsBoundedWhileServersAreDead(seed: UInt64, number: Int) async {
        let broken = await onItsOwnThread { () -> String? in
            var mood = ServerMood()
            mood.capacity = 500
            var begin: [LinkStep] = [.connect]
            switch number {
            case 0: mood.opening = .refusesConnections
            case 1: mood.opening = .isAway
            case 2: mood.opening = .refuses(503, retryAfter: 20)
            case 3: begin.append(.stopReading)
            default: begin.append(.cut(true))
            }
            var script: [LinkStep] = [.mood(mood)] + begin
            for round in 0..<30 {
                script.append(.send(length: 100, isText: true, round % 2 == 0 ? .awaited : .completion, count: 40))
                script.append(round % 3 == 0 ? .cancel(choice: round) : .time(900))
            }
            return LinkHistory.run(script, seed: seed)
        }
        #expect(broken == nil)
    }

    /// Histories that have broken a promise, with the promise.
    @Test(arguments: Self.histories)
    func historyThatHasBrokenAPromise(_ history: History) async {
        let broken = await onItsOwnThread { LinkHistory.run(history.steps, seed: history.seed) }
        #expect(broken == nil)
    }

    struct History: Sendable, CustomTestStringConvertible {
        var testDescription: String
        /// The seed of the settings.
        var seed: UInt64
        var steps: [LinkStep]
    }

    static let histories: [History] = {
        let close = LinkStep.server([.message(isText: true, length: 9, fragments: 1), .close(1_008)])
        var mute = ServerMood()
        mute.answersCloses = false
        var narrow = ServerMood()
        narrow.capacity = 40
        let long = LinkStep.send(length: 150_000, isText: true, .completion, count: 2)
        let short = LinkStep.send(length: 100, isText: true, .completion, count: 2)
        return [
            History(
                testDescription: "a user's close is clean although the server has not answered",
                seed: 2,
                steps: [.mood(mute), .connect, .disconnect(code: 3_000, hasReason: true), .time(11_000)]
            ),
            History(
                testDescription: "a connection is attempted before the dead one is closed",
                seed: 2,
                steps: [.connect, .stopReading, .network(true), .time(8_314)]
            ),
            History(
                testDescription: "a connection is attempted while our close frame is still to leave",
                seed: 1,
                steps: [.mood(narrow), .connect, .stopReading, long, .server([.close(4_000)]), .time(12_000)]
            ),
            History(
                testDescription: "a message succeeds although its write has failed",
                seed: 17,
                steps: [.connect, .end(.onWrite), .send(length: 215, isText: true, .awaited, count: 2)]
            ),
            History(
                testDescription: "what leaves while a link closes is told to be lost",
                seed: 52,
                steps: [.connect, .stopReading, .server([.request(count: 3), .close(1_001), .ping])]
            ),
            History(
                testDescription: "the code of a close that did nothing is that of the next",
                seed: 54,
                steps: [.connect, .server([.violation(5)]), .disconnect(code: 1_000, hasReason: true), .connect]
            ),
            History(
                testDescription: "a message that has not left fails with sentUnknown",
                seed: 215,
                steps: [.connect, .stopReading, long, long, short, .server([.violation(4)]), .end(.fin)]
            ),
            History(
                testDescription: "a close frame that waits for a reader is forgotten when TCP ends",
                seed: 2,
                steps: [.hold, .connect, close, .end(.fin), .time(30_000), .receive(nil)]
            ),
            History(
                testDescription: "a message that waits for a stalled server hangs after the user's close",
                seed: 3,
                steps: [
                    .mood(narrow), .connect, .stopReading, long, short, .disconnect(code: 1_000, hasReason: false),
                    .time(12_000),
                ]
            ),
            History(
                testDescription: "messages that were cancelled keep their room",
                seed: 2,
                steps: [
                    .send(length: 50, isText: true, .awaited, count: 4), .cancel(choice: 0), .cancel(choice: 1),
                    .send(length: 50, isText: true, .awaited, count: 2),
                ]
            ),
        ]
    }()
}
