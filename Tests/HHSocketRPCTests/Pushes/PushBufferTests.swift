// SPDX-License-Identifier: Apache-2.0
import Testing

@testable import HHSocketRPC

/// The pushes that wait for a subscriber, without sockets, locks or time.
@Suite struct PushBufferTests {
    private func drain(_ buffer: inout PushBuffer<Int>) -> [Int] {
        var elements: [Int] = []
        while let (element, _) = buffer.popFirst() { elements.append(element) }
        return elements
    }

    @Test func dropOldestKeepsTheLatest() {
        var buffer = PushBuffer<Int>(.dropOldest(3))
        #expect(
            (0..<10).map { buffer.append($0) } == Array(repeating: .kept, count: 3)
                + Array(repeating: .dropped, count: 7)
        )
        #expect(self.drain(&buffer) == [7, 8, 9])
        #expect(!buffer.holdsReading)
    }

    @Test func dropNewestKeepsTheFirst() {
        var buffer = PushBuffer<Int>(.dropNewest(3))
        #expect(
            (0..<10).map { buffer.append($0) } == Array(repeating: .kept, count: 3)
                + Array(repeating: .dropped, count: 7)
        )
        #expect(self.drain(&buffer) == [0, 1, 2])
        #expect(!buffer.holdsReading)
    }

    @Test(arguments: [PushBufferingPolicy.dropOldest(2), .dropNewest(2)])
    func roomThatWasMadeIsUsed(policy: PushBufferingPolicy) {
        var buffer = PushBuffer<Int>(policy)
        for number in 0..<1_000 {
            #expect(buffer.append(2 * number) == .kept)
            #expect(buffer.append(2 * number + 1) == .kept)
            #expect(self.drain(&buffer) == [2 * number, 2 * number + 1])
        }
    }

    @Test(arguments: [(1, 0), (2, 1), (3, 1), (4, 2), (1_000, 500)])
    func suspendReadingHoldsAtTheLimitAndReleasesAtHalfOfIt(limit: Int, half: Int) {
        var buffer = PushBuffer<Int>(.suspendReading(limit))
        for number in 1..<limit { #expect(buffer.append(number) == .kept) }
        #expect(!buffer.holdsReading)
        #expect(buffer.append(limit) == .holdsReading)
        // Pushes that were read before are still delivered, and reading is not suspended twice.
        for number in limit + 1...2 * limit { #expect(buffer.append(number) == .kept) }
        for number in 1...2 * limit {
            #expect(buffer.holdsReading == (2 * limit - number >= half))
            let popped = buffer.popFirst()
            #expect(popped?.element == number)
            #expect(popped?.releasesReading == (2 * limit - number == half))
        }
        #expect(buffer.popFirst()?.element == nil)
    }

    @Test func suspendReadingHoldsAgain() {
        var buffer = PushBuffer<Int>(.suspendReading(2))
        for _ in 0..<100 {
            #expect(buffer.append(1) == .kept)
            #expect(buffer.append(2) == .holdsReading)
            #expect(buffer.popFirst()?.releasesReading == true)
            // One push still waits.
            #expect(buffer.append(3) == .holdsReading)
            #expect(buffer.popFirst()?.releasesReading == true)
            #expect(buffer.popFirst()?.releasesReading == false)
        }
    }

    @Test func discardedPushesHoldNothing() {
        var buffer = PushBuffer<Int>(.suspendReading(1))
        #expect(buffer.append(1) == .holdsReading)
        buffer.removeAll()
        #expect(!buffer.holdsReading)
        #expect(buffer.popFirst()?.element == nil)
        #expect(buffer.append(2) == .holdsReading)
    }

    @Test(arguments: [0, -1, .min, 1])
    func lessThanOneCountsAsOne(limit: Int) {
        var oldest = PushBuffer<Int>(.dropOldest(limit))
        #expect([oldest.append(1), oldest.append(2)] == [.kept, .dropped])
        #expect(self.drain(&oldest) == [2])
        var newest = PushBuffer<Int>(.dropNewest(limit))
        #expect([newest.append(1), newest.append(2)] == [.kept, .dropped])
        #expect(self.drain(&newest) == [1])
        var holding = PushBuffer<Int>(.suspendReading(limit))
        #expect(holding.append(1) == .holdsReading)
        #expect(holding.popFirst()?.releasesReading == true)
    }

    @Test func theDefaultDropsTheOldestOf1024() {
        #expect(PushBufferingPolicy.default == .dropOldest(1_024))
    }
}
