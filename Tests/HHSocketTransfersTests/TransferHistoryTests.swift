// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketTransferValues
import TestSupport
import Testing

@testable import HHSocketTransfers

/// Random histories of transfers in virtual time.
@Suite struct TransferHistoryTests {
    @Test func putsKeepTheirPromises() {
        for seed in 1...UInt64(historyCount) {
            if let broken = PutHistory.run(seed: seed) {
                Issue.record("seed \(seed): \(broken)")
                return
            }
        }
    }

    @Test func getsKeepTheirPromises() {
        for seed in 1...UInt64(historyCount) {
            if let broken = GetHistory.run(seed: seed) {
                Issue.record("seed \(seed): \(broken)")
                return
            }
        }
    }

    @Test func historiesEndInEveryWay() {
        let puts = Set((1...500).map { PutHistory.end(seed: $0) })
        #expect(puts == ["end", "stalled", "superseded", "wrongHash"])
        let gets = Set((1...500).map { GetHistory.end(seed: $0) })
        #expect(gets == ["end", "stalled", "notFound"])
    }

    @Test(arguments: PutHistory.Fault.allCases) func mistakesOfPutsAreFound(_ fault: PutHistory.Fault) {
        #expect((1...1_000).contains { PutHistory.run(seed: $0, fault: fault) != nil })
    }

    @Test(arguments: GetHistory.Fault.allCases) func mistakesOfGetsAreFound(_ fault: GetHistory.Fault) {
        #expect((1...1_000).contains { GetHistory.run(seed: $0, fault: fault) != nil })
    }
}
