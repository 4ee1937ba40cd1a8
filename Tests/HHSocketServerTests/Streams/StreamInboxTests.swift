// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketServer

/// The items that a handler has not taken.
@Suite struct StreamInboxTests {
    private func items(of lengths: [Int]) -> [StreamItem] {
        lengths.map { length in
            let read = ByteBuffer(repeating: 7, count: 256 << 10)
            let payload = read.getSlice(at: 0, length: length) ?? ByteBuffer()
            return StreamItem(payload: payload, isCompressed: false, receipt: ItemReceipt())
        }
    }

    @Test(arguments: [1, 1_000, 65_535, 65_536, 65_537, 131_071])
    func itemsKeepNoReads(length: Int) {
        var inbox = StreamInbox()
        for item in self.items(of: [length, length]) { inbox.append(item) }
        while let item = inbox.popFirst() {
            #expect(item.body.readableBytes == length)
            #expect(item.body.storageCapacity <= max(128 << 10, 2 * length))
        }
    }

    /// A handler that keeps an item keeps the chunk in which it was gathered. The inbox does not keep chunks of items
    /// that were taken.
    @Test func chunksOfTakenItemsAreReleased() throws {
        var inbox = StreamInbox()
        for item in self.items(of: Array(repeating: 40_000, count: 4)) { inbox.append(item) }
        var bodies: [ByteBuffer] = []
        while let item = inbox.popFirst() {
            bodies.append(item.body)
            if bodies.count == 2 {
                // The first item's memory is its own by now.
                let isAlone: Void? = bodies[0].modifyIfUniquelyOwned { _ in }
                #expect(isAlone != nil)
            }
        }
        #expect(bodies.map(\.readableBytes) == Array(repeating: 40_000, count: 4))
        #expect(bodies.allSatisfy { $0.readableBytesView.allSatisfy { $0 == 7 } })
    }
}
