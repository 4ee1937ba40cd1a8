// SPDX-License-Identifier: Apache-2.0
import TestSupport
import Testing

/// A whole `STOMPClient` in virtual time with a strict broker, in random histories: the client breaks no rule; no
/// message is sent twice, and none arrives that was not sent; each has one outcome, in time; subscriptions exist
/// exactly once; settled messages are not redelivered, and others return to the broker; there are never two
/// connections.
///
/// 300 times `HHSOCKET_EFFORT`.
@Suite struct STOMPModelTests {
    @Test func everyHistoryKeepsThePromises() async {
        let broken = await onItsOwnThread { () -> String? in
            for seed in 0..<UInt64(scaled(300)) {
                let script = STOMPStep.script(seed: seed)
                guard let broken = STOMPWorld.run(script, seed: seed) else { continue }
                let (short, promise) = shortened(script, broken) { STOMPWorld.run($0, seed: seed) }
                return "seed \(seed): \(promise); shortened to \(short.count) steps:\n\(short)"
            }
            return nil
        }
        if let broken { Issue.record("\(broken)") }
    }

    /// Checks that the harness can fail: each of these has a fault in one place, which must be detected.
    @Test(arguments: STOMPWorld.Flaw.allCases)
    func worldThatExpectsSomethingElseIsFoundOut(flaw: STOMPWorld.Flaw) async {
        let found = await onItsOwnThread {
            (0..<UInt64(300)).contains { seed in
                STOMPWorld.run(STOMPStep.script(seed: seed), seed: seed, flaw: flaw) != nil
            }
        }
        #expect(found)
    }

    /// The time limit of an earlier `disconnect()` does not end the wait of the next one.
    @Test func eachDisconnectHasItsOwnTime() async {
        let states = await onItsOwnThread { () -> [String]? in
            guard let world = try? STOMPWorld(seed: 2) else { return nil }
            let send = STOMPStep.send(count: 1, length: 3, receipt: true, .awaited)
            let disconnecting: [STOMPStep] = [.connect, .broker(isReading: false), send, .disconnect]
            for step in disconnecting + [.broker(isReading: true), .time(milliseconds: 4_000)] + disconnecting {
                if world.take(step) != nil { return nil }
            }
            var states: [String] = []
            for milliseconds in [1_500, 3_000] {
                if world.take(.time(milliseconds: milliseconds)) != nil { return nil }
                states.append(world.client.map { "\($0.state)" } ?? "")
            }
            return world.end(heals: false) == nil ? states : nil
        }
        #expect(states == ["ready, one.example:61613", "ready, one.example:61613"])
    }
}
