// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import TestSupport
import Testing

@testable import HHSocketRPC

/// Pushes that carry nothing cost a client work in proportion to their number, under each policy, whether they are read
/// one by one or in batches.
@Suite struct PushEmptyUnitTests {
    enum Reading: CaseIterable { case none, each, batches }

    private struct Push: InboxElement {
        var memory: Int { 0 }
        mutating func detach(isOneOfMany: Bool) {}
    }

    private static let count = 4_000

    private static let policies: [PushBufferingPolicy] = [
        .dropOldest(100), .dropOldest(.max), .dropNewest(100), .dropNewest(.max), .suspendReading(100),
    ]

    @Test(arguments: policies, Reading.allCases)
    func fourTimesAsManyTakeFourTimesTheWork(_ policy: PushBufferingPolicy, reading: Reading) throws {
        let growth = try WorkGrowth(Self.count) { count in
            let inbox = Inbox<Push>(policy.bounds, account: nil)
            return {
                let reader = inbox.makeReader()
                for number in 0..<count {
                    var pushes: Deque = [Push()]
                    inbox.append(contentsOf: &pushes)
                    switch reading {
                    case .none: break
                    case .each:
                        _ = reader.take()
                        reader.giveBack()
                    case .batches:
                        if number % 3 == 0 { _ = reader.take() }
                        while reader.pop() != nil {}
                    }
                }
                while reader.take() != nil {}
                #expect(inbox.isEmpty)
            }
        }
        #expect(growth.isLinear, "\(growth)")
    }
}
