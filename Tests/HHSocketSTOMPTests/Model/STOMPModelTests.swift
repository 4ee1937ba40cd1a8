import TestSupport
import Testing

/// A whole `STOMPClient` in virtual time with a strict broker, through histories that chance writes: the client breaks
/// no rule; no message is sent twice, and none that was not sent arrives; each has one outcome, in time; subscriptions
/// are there exactly once; what is settled does not come again, and what is not is the broker's; there are never two
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

    /// A harness that cannot fail proves nothing: each of these expects something else in one place, and must be found
    /// out.
    @Test(arguments: STOMPWorld.Flaw.allCases)
    func worldThatExpectsSomethingElseIsFoundOut(flaw: STOMPWorld.Flaw) async {
        let found = await onItsOwnThread {
            (0..<UInt64(300)).contains { seed in
                STOMPWorld.run(STOMPStep.script(seed: seed), seed: seed, flaw: flaw) != nil
            }
        }
        #expect(found)
    }
}
