// SPDX-License-Identifier: Apache-2.0
import HHSocket
import Testing

@testable import HHSocketRPC

/// The policies for pushes that wait, as the bounds of an inbox.
@Suite struct PushBufferingPolicyTests {
    @Test(arguments: [
        (PushBufferingPolicy.dropOldest(3), InboxBounds.AtLimit.dropOldest), (.dropNewest(3), .dropNewest),
        (.suspendReading(3), .hold),
    ])
    func eachPolicyIsABoundOfTheInbox(policy: PushBufferingPolicy, atLimit: InboxBounds.AtLimit) {
        #expect(policy.bounds.atLimit == atLimit)
        #expect(policy.bounds.count == 3 && policy.bounds.bytes == .max)
    }

    @Test(arguments: [0, -1, .min, 1])
    func lessThanOneCountsAsOne(limit: Int) {
        for policy in [PushBufferingPolicy.dropOldest(limit), .dropNewest(limit), .suspendReading(limit)] {
            #expect(policy.bounds.count == 1 && policy.bounds.batch == 1)
        }
    }

    @Test func readersTakeASixteenthOfTheLimitAtOnceAnd256AtMost() {
        let batches = [1, 31, 64, 4_096, .max].map { PushBufferingPolicy.dropOldest($0).bounds.batch }
        #expect(batches == [1, 1, 4, 256, 256])
    }

    @Test func theDefaultDropsTheOldestOf1024() {
        #expect(PushBufferingPolicy.default == .dropOldest(1_024))
    }
}
