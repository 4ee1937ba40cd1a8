// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import TestSupport
import Testing

@testable import HHSocket

@Suite struct BackoffTests {
    @Test func boundDoublesUpToTheCap() {
        let backoff = Backoff()
        let bounds = (0...8).map { backoff.bound(afterFailures: $0) }
        #expect(bounds == [1, 2, 4, 8, 16, 32, 60, 60, 60].map { .seconds($0) })
    }

    @Test func boundOfAMillionFailuresIsTheCap() {
        #expect(Backoff().bound(afterFailures: .max) == .seconds(60))
        #expect(Backoff(factor: 1).bound(afterFailures: 1_000_000) == .seconds(1))
        #expect(Backoff(base: .zero).bound(afterFailures: 10_000) == Backoff.minimumRepeatedWait)
    }

    @Test func everyDelayIsJitteredTheFirstToo() {
        var generator = SeededGenerator(seed: 1)
        for failures in 0...7 {
            let bound = Backoff().bound(afterFailures: failures)
            let delays = (0..<1_000).map { _ in Backoff().delay(afterFailures: failures, using: &generator) }
            #expect(delays.allSatisfy { $0 >= .zero && $0 <= bound })
            // Spread over the whole range: each tenth of it gets its share, 100 of 1,000.
            for tenth in 0..<10 {
                let range = (bound / 10 * tenth)..<(bound / 10 * (tenth + 1))
                let share = delays.filter { range.contains($0) }.count
                #expect((50...160).contains(share), "tenth \(tenth) of \(bound): \(share)")
            }
        }
    }
}
