// SPDX-License-Identifier: Apache-2.0
import TestSupport
import Testing

/// The client compared with a model in random histories: every call completes exactly once, at the right time, with the
/// right error; the sent frames are right, and in the right order; interceptors are notified, and pushes reach their
/// subscribers; every bound is kept.
///
/// 1,000 times `HHSOCKET_EFFORT`; `make soak` runs 50,000.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ClientModelTests {
    @Test func clientDoesWhatTheModelDoes() async {
        let broken = await onItsOwnThread { () -> String? in
            for seed in 0..<UInt64(scaled(1_000)) {
                let script = ClientHistory.script(seed: seed)
                guard let broken = ClientHistory.run(script, seed: seed) else { continue }
                let (short, promise) = shortened(script, broken) { ClientHistory.run($0, seed: seed, patience: 2) }
                return "seed \(seed): \(promise); shortened to \(short.count) steps:\n\(short)"
            }
            return nil
        }
        if let broken { Issue.record("\(broken)") }
    }

    /// Checks that the harness can fail: each of these models has a fault in one place, which must be detected.
    @Test(arguments: 0..<13)
    func modelThatExpectsSomethingElseIsFoundOut(number: Int) async {
        let found = await onItsOwnThread {
            let flaws: [(inout ModelClient.Limits) -> Void] = [
                { $0.inFlight += 1 }, { $0.waiting -= 1 }, { $0.waitingBytes -= 10 }, { $0.tombstones += 1 },
                { $0.budget -= 1 }, { $0.deposit = 1_000 },
                { $0.morePushes = 1 }, { $0.releasingPart = 1 },
                { $0.retriesOutsideOfInterceptors = true }, { $0.countsAttemptsOfAllAskings = true },
                { $0.stopsInterceptors = false }, { $0.resends = 2 }, { $0.resendsGoFirst = false },
            ]
            return (0..<UInt64(3_000)).lazy.compactMap { seed -> Int? in
                let script = ClientHistory.script(seed: seed)
                guard let broken = ClientHistory.run(script, seed: seed, flaw: flaws[number]),
                    ClientHistory.run(script, seed: seed) == nil
                else { return nil }
                return shortened(script, broken) { ClientHistory.run($0, seed: seed, flaw: flaws[number]) }.0.count
            }.first
        }
        #expect((found ?? .max) <= 60)
    }
}
