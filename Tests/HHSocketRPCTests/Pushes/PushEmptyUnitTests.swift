// SPDX-License-Identifier: Apache-2.0
import DequeModule
import TestSupport
import Testing

@testable import HHSocketRPC

/// Pushes that carry nothing cost a client work in proportion to their number, under each policy, whether they are read
/// one by one or in batches.
@Suite struct PushEmptyUnitTests {
    enum Reading: CaseIterable { case none, each, batches }

    private static let count = 4_000

    private static let policies: [PushBufferingPolicy] = [
        .dropOldest(100), .dropOldest(.max), .dropNewest(100), .dropNewest(.max), .suspendReading(100),
    ]

    @Test(arguments: policies, Reading.allCases)
    func fourTimesAsManyTakeFourTimesTheWork(_ policy: PushBufferingPolicy, reading: Reading) throws {
        let growth = try WorkGrowth(Self.count) { count in
            var buffer = PushBuffer<Int>(policy)
            return {
                var batch: Deque<Int> = []
                for number in 0..<count {
                    _ = buffer.append(number)
                    switch reading {
                    case .none: break
                    case .each: _ = buffer.popFirst()
                    case .batches:
                        if number % 3 == 0 { _ = buffer.take(into: &batch) }
                        batch.removeAll(keepingCapacity: true)
                    }
                }
                while buffer.popFirst() != nil {}
                #expect(buffer.count == 0)
            }
        }
        #expect(growth.isLinear, "\(growth)")
    }
}
