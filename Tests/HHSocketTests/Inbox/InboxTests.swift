// SPDX-License-Identifier: Apache-2.0
import DequeModule
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// The elements that wait for readers, without sockets or time.
@Suite struct InboxTests {
    private struct Number: InboxElement {
        var value: Int

        var memory: Int { 0 }
        mutating func detach(isOneOfMany: Bool) {}
    }

    private enum Appended: Equatable {
        case kept, dropped, holds
    }

    private func inbox(_ atLimit: InboxBounds.AtLimit, _ count: Int) -> Inbox<Number> {
        var bounds = InboxBounds(atLimit, batch: 1, detaching: .waiting)
        bounds.count = count
        return Inbox(bounds, account: nil)
    }

    private func append(_ number: Int, to inbox: Inbox<Number>) -> Appended {
        var numbers: Deque = [Number(value: number)]
        let appended = inbox.append(contentsOf: &numbers)
        #expect(numbers.isEmpty)
        return appended.holds ? .holds : appended.dropped > 0 ? .dropped : .kept
    }

    private func drain(_ inbox: Inbox<Number>) -> [Int] {
        let reader = inbox.makeReader()
        var numbers: [Int] = []
        while let number = reader.take() { numbers.append(number.value) }
        return numbers
    }

    @Test(arguments: zip([InboxBounds.AtLimit.dropOldest, .dropNewest], [[7, 8, 9], [0, 1, 2]]))
    func dropKeepsTheLatestOrTheFirst(atLimit: InboxBounds.AtLimit, kept: [Int]) {
        let inbox = self.inbox(atLimit, 3)
        #expect(
            (0..<10).map { self.append($0, to: inbox) } == Array(repeating: .kept, count: 3)
                + Array(repeating: .dropped, count: 7)
        )
        #expect(!inbox.isFull)
        #expect(self.drain(inbox) == kept)
    }

    @Test(arguments: [InboxBounds.AtLimit.dropOldest, .dropNewest])
    func roomThatWasMadeIsUsed(atLimit: InboxBounds.AtLimit) {
        let inbox = self.inbox(atLimit, 2)
        for number in 0..<1_000 {
            #expect(self.append(2 * number, to: inbox) == .kept)
            #expect(self.append(2 * number + 1, to: inbox) == .kept)
            #expect(self.drain(inbox) == [2 * number, 2 * number + 1])
        }
    }

    @Test(arguments: [(1, 0), (2, 1), (3, 1), (4, 2), (1_000, 500)])
    func readingIsHeldAtTheLimitAndReleasedAtHalfOfIt(limit: Int, half: Int) {
        let inbox = self.inbox(.hold, limit)
        for number in 1..<limit { #expect(self.append(number, to: inbox) == .kept) }
        #expect(!inbox.isFull)
        #expect(self.append(limit, to: inbox) == .holds)
        // Elements that were read before are still delivered, and reading is not suspended twice.
        for number in limit + 1...2 * limit { #expect(self.append(number, to: inbox) == .kept) }
        let reader = inbox.makeReader()
        for number in 1...2 * limit {
            #expect(inbox.isFull == (2 * limit - number >= half))
            #expect(reader.take()?.value == number)
        }
        #expect(reader.take() == nil)
    }

    @Test func readingIsHeldAgain() {
        let inbox = self.inbox(.hold, 2)
        let reader = inbox.makeReader()
        for _ in 0..<100 {
            #expect(self.append(1, to: inbox) == .kept)
            #expect(self.append(2, to: inbox) == .holds)
            #expect(reader.take() != nil && !inbox.isFull)
            // One element still waits.
            #expect(self.append(3, to: inbox) == .holds)
            #expect(reader.take() != nil && !inbox.isFull)
            #expect(reader.take() != nil && !inbox.isFull)
        }
    }

    // MARK: Items of streams

    private func items(of lengths: [Int]) -> Deque<StreamItem> {
        Deque(
            lengths.map { length in
                let read = ByteBuffer(repeating: 7, count: 256 << 10)
                let payload = read.getSlice(at: 0, length: length) ?? ByteBuffer()
                return StreamItem(payload: payload, isCompressed: false, receipt: ItemReceipt())
            }
        )
    }

    private func taken(_ inbox: Inbox<StreamItem>, _ batches: Deque<StreamItem>...) -> [StreamItem] {
        for batch in batches {
            var items = batch
            inbox.append(contentsOf: &items)
        }
        let reader = inbox.makeReader()
        var items: [StreamItem] = []
        while let item = reader.take() { items.append(item) }
        return items
    }

    @Test(arguments: [1, 1_000, 65_535, 65_536, 65_537, 131_071])
    func itemsThatWaitKeepNoReads(length: Int) {
        let items = self.taken(Inbox(.items(detaching: .all), account: nil), self.items(of: [length, length]))
        for item in items {
            #expect(item.payload.readableBytes == length)
            #expect(item.payload.storageCapacity <= max(128 << 10, 2 * length))
        }
        #expect(items.count == 2)
        // The items of a reader that is up to date are in their read, those that follow are not.
        let behind = self.taken(
            Inbox(.items(detaching: .behind), account: nil),
            self.items(of: [length]),
            self.items(of: [length, length])
        )
        #expect(behind.map { $0.payload.readableBytes } == [length, length, length])
        #expect(behind[0].payload.storageCapacity >= 256 << 10)
        if length > FrameDecoder.defaultCopyLimit {
            #expect(behind.dropFirst().allSatisfy { $0.payload.storageCapacity <= max(128 << 10, 2 * length) })
        }
    }

    @Test func smallItemsAreCopiedTogetherInTheirOrder() {
        let lengths = [16, 0, 70_000, 16, 40_000, 40_000, 1, 200_000, 16]
        var items = self.items(of: lengths)
        for index in items.indices {
            items[index].payload.setInteger(UInt8(index), at: items[index].payload.readerIndex)
        }
        let taken = self.taken(Inbox(.items(detaching: .all), account: nil), items)
        #expect(taken.map { $0.payload.readableBytes } == lengths)
        for (index, item) in taken.enumerated() where lengths[index] > 0 {
            #expect(item.payload.getInteger(at: item.payload.readerIndex) == UInt8(index))
        }
        #expect(taken[0].payload.storageCapacity == taken[3].payload.storageCapacity)
        #expect(taken[1].payload.storageCapacity == 0)
    }

    /// A handler that keeps an item keeps the chunk in which it was gathered, and nothing that arrived at another time.
    @Test func chunksOfTakenItemsAreReleased() {
        var items = self.taken(
            Inbox(.items(detaching: .all), account: nil),
            self.items(of: [40_000]),
            self.items(of: [40_000]),
            self.items(of: [40_000])
        )
        #expect(items.count == 3)
        for index in items.indices {
            let isAlone: Void? = items[index].payload.modifyIfUniquelyOwned { _ in }
            #expect(isAlone != nil)
        }
    }
}
