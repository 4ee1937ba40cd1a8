// SPDX-License-Identifier: Apache-2.0
import TestSupport
import Testing

/// The promises that hold whatever is cut, killed or put beside: every put and get ends once and well, unless another
/// writer has come; what is visible, and what is fetched, is one content whole; what was reported as whole is there;
/// nothing is left; and nothing is sent twice but what was under way.
@Suite(.timeLimit(.minutes(5))) struct TransferRivalsTests {
    @Test func promisesAreKept() async throws {
        for seed in 1...UInt64(scaled(40)) {
            if let broken = try await TransferRivals.run(seed: seed) {
                Issue.record("seed \(seed): \(broken)")
                return
            }
        }
    }

    /// From the first seed on whose history shows it: others take long.
    @Test(arguments: [
        (TransferRivals.Fault.damagesContent, 1), (.tellsNoFailure, 21), (.mixesFiles, 79), (.losesContent, 1),
    ])
    func mistakesAreFound(_ fault: TransferRivals.Fault, _ first: Int) async throws {
        for seed in first..<first + 50 {
            if try await TransferRivals.run(seed: UInt64(seed), fault: fault) != nil { return }
        }
        Issue.record("nobody has noticed")
    }
}
