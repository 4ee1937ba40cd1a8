// SPDX-License-Identifier: Apache-2.0
package import DequeModule
import NIOCore

/// Items that wait are copied together: each would otherwise keep the buffer of the read that brought it. The copies of
/// one inbox are in chunks of its own, so an unread item keeps no other stream's bytes.
extension StreamItem: InboxElement {
    /// The largest size of a chunk.
    private static var chunkSize: Int { 64 << 10 }

    package var memory: Int { self.payload.detachedCapacity }

    package mutating func detach(isOneOfMany: Bool) {
        if self.mustDetach(isOneOfMany: isOneOfMany) { self.payload = self.payload.detached }
    }

    /// Small items are in blocks of 1 KiB, most of which have several.
    private func mustDetach(isOneOfMany: Bool) -> Bool {
        isOneOfMany || self.payload.readableBytes > FrameDecoder.defaultCopyLimit
    }

    /// The number of bytes that are copied into a chunk; 0 for an item that keeps its own.
    private func gatheredLength(isOneOfMany: Bool) -> Int {
        let length = self.payload.readableBytes
        let isGathered = length < Self.chunkSize && 2 * length < self.payload.storageCapacity
        return isGathered && self.mustDetach(isOneOfMany: isOneOfMany) ? length : 0
    }

    package static func detach(_ items: inout Deque<StreamItem>, isOneOfMany: Bool) {
        var start = items.startIndex
        while start < items.endIndex {
            var (end, size) = (start, 0)
            while end < items.endIndex {
                let length = items[end].gatheredLength(isOneOfMany: isOneOfMany)
                if size > 0, size + length > Self.chunkSize { break }
                size += length
                end += 1
            }
            Self.gather(&items, start..<end, size: size, isOneOfMany: isOneOfMany)
            start = end
        }
    }

    /// Copies the items of a range that are gathered into one chunk, of which they are slices then.
    private static func gather(
        _ items: inout Deque<StreamItem>,
        _ range: Range<Int>,
        size: Int,
        isOneOfMany: Bool
    ) {
        var chunk = ByteBuffer()
        chunk.reserveCapacity(size)
        for index in range where items[index].gatheredLength(isOneOfMany: isOneOfMany) > 0 {
            chunk.writeImmutableBuffer(items[index].payload)
        }
        for index in range {
            if items[index].gatheredLength(isOneOfMany: isOneOfMany) > 0 {
                items[index].payload = chunk.readSlice(length: items[index].payload.readableBytes) ?? ByteBuffer()
            } else {
                items[index].detach(isOneOfMany: isOneOfMany)
            }
        }
    }
}

extension InboxBounds {
    /// The bounds of a stream's items, which its window bounds.
    package static func items(detaching: Detaching) -> InboxBounds {
        var bounds = InboxBounds(.unbounded, batch: .max, detaching: detaching)
        bounds.isForOneReader = true
        return bounds
    }
}
