import TestSupport
import Testing

/// The client against a model of it, through histories that chance writes: every call completes exactly once, at the right
/// moment, with the right error; what leaves is right, and in the right order; every bound is kept.
///
/// `HHSOCKET_HISTORIES` says how many; `make soak` takes 100,000.
@Suite struct ClientModelTests {
    @Test func clientDoesWhatTheModelDoes() {
        for seed in 0..<UInt64(historyCount) {
            let script = ClientHistory.script(seed: seed)
            guard let broken = ClientHistory.run(script, seed: seed) else { continue }
            let (short, promise) = shortened(script, broken) { ClientHistory.run($0, seed: seed) }
            Issue.record("seed \(seed): \(promise); shortened to \(short.count) steps:\n\(short)")
            return
        }
    }

    /// A harness that cannot fail proves nothing: each of these expects something else in one place, and must be found out.
    @Test(arguments: 0..<8)
    func modelThatExpectsSomethingElseIsFoundOut(number: Int) {
        let flaws: [(inout ModelClient.Limits) -> Void] = [
            { $0.inFlight += 1 }, { $0.waiting -= 1 }, { $0.waitingBytes -= 10 }, { $0.tombstones += 1 },
            { $0.budget -= 1 },
            { $0.deposit = 1_000 }, { $0.morePushes = 1 }, { $0.releasingPart = 1 },
        ]
        let found = (0..<UInt64(3_000)).lazy.compactMap { seed -> Int? in
            let script = ClientHistory.script(seed: seed)
            guard let broken = ClientHistory.run(script, seed: seed, flaw: flaws[number]) else { return nil }
            return shortened(script, broken) { ClientHistory.run($0, seed: seed, flaw: flaws[number]) }.0.count
        }.first
        #expect((found ?? .max) <= 60)
    }
}
