// SPDX-License-Identifier: Apache-2.0
import HHSocket
import TestSupport
import Testing

/// A client's and a server's streams with each other, in random histories: windows, pieces, slow consumers, cancels,
/// half-closes and losses. No byte is sent beyond a window; no item is lost, duplicated or out of order; each stream
/// ends once on each side; memory is bounded; no stream stalls while its items are taken; and in the end all credit is
/// returned.
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

    /// Checks that the harness can fail: each of these has a fault in one place, which must be detected.
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
