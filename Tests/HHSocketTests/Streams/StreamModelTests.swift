// SPDX-License-Identifier: Apache-2.0
import HHSocket
import TestSupport
import Testing

/// A client's and a server's streams against each other, through histories that chance writes: windows, pieces, slow
/// consumers, cancels, half-closes and losses. No byte leaves beyond a window; no item is lost, doubled or out of
/// order; each stream ends once on each side; memory is bounded; nothing stands still while somebody takes; and in the
/// end everything is given back.
@Suite(.timeLimit(.minutes(30))) struct StreamModelTests {
    @Test func randomHistoriesKeepEveryPromise() {
        for seed in 0..<UInt64(scaled(300)) {
            let script = StreamHistory.script(seed: seed)
            guard let broken = StreamHistory.run(script) else { continue }
            let (short, still) = shortened(script.steps, broken) { StreamHistory.run(script, $0) }
            Issue.record(
                """
                seed \(seed), \(script.terms), socket \(script.socketBuffer): \(still)
                \(short.map { "\($0)" }.joined(separator: "\n"))
                """
            )
            return
        }
    }

    /// A harness that cannot fail proves nothing: each of these does something wrong in one place, and must be found.
    @Test(arguments: StreamFlaw.allCases)
    func flawsAreFound(_ flaw: StreamFlaw) {
        let found = (0..<UInt64(400)).lazy.compactMap { seed -> String? in
            let script = StreamHistory.script(seed: seed)
            guard let broken = StreamHistory.run(script, flaw: flaw), StreamHistory.run(script) == nil else {
                return nil
            }
            return broken
        }.first
        #expect(found != nil)
    }
}
