// SPDX-License-Identifier: Apache-2.0
import HHSocketTransferValues
import TestSupport
import Testing

/// The promises of transfers despite cut connections, killed processes and rival puts: every put and get ends once and
/// successfully, unless another writer has superseded it; visible and fetched files are one content, complete; a file
/// that was reported as complete is visible; nothing unfinished is left; and only content in transit is sent twice.
@Suite(.timeLimit(.minutes(5))) struct TransferRivalsTests {
    @Test func promisesAreKept() async throws {
        for seed in 1...UInt64(scaled(40)) {
            if let broken = try await TransferRivals.run(seed: seed) {
                Issue.record("seed \(seed): \(broken)")
                return
            }
        }
    }

    /// Begins with the first seed whose history shows the fault: others take long.
    @Test(arguments: [
        (TransferRivals.Fault.damagesContent, 1), (.reportsNoFailure, 21), (.mixesFiles, 79), (.losesContent, 1),
    ])
    func mistakesAreFound(_ fault: TransferRivals.Fault, _ first: Int) async throws {
        for seed in first..<first + 50 {
            if try await TransferRivals.run(seed: UInt64(seed), fault: fault) != nil { return }
        }
        Issue.record("the fault was not detected")
    }
}
