// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
package import NIOCore

/// A part of a transferred file, as an item in either direction: `TransferContent` in `hhsocket/transfer.proto`, which
/// has the same number in the items of both methods.
///
/// Its bytes are read from a file into the item and written from the item to a file, without a copy in between.
package struct TransferPart: Hashable, Sendable {
    /// The greatest number of bytes in a part.
    package static let maximumLength = 1 << 20
    /// The largest number of bytes in a part whose item fits one frame, so that it need not be assembled from pieces.
    /// Four of them, with the cost of their frames, fit the window of a stream for which hello announces none. A number
    /// of whole pages, so that neither side touches a page of its file twice.
    package static let lengthInOneFrame = StreamFrames.maximumPieceLength - (4 << 10)
    /// The window of a stream that carries content, if hello announced less, in the cost of frames: neither side waits
    /// for the other's credit while it reads or writes a file.
    package static let window: UInt64 = 1 << 20
    /// The number of bytes in the first parts of an attempt.
    package static let shortestLength: UInt64 = 8 << 10

    /// The length of the next part, in bytes. A part whose end does not arrive is lost, so parts must be short on a
    /// link that breaks every few seconds: no longer than all earlier ones of this attempt.
    ///
    /// - Parameters:
    ///   - moved: The number of bytes that were transferred before in this attempt.
    ///   - longest: The largest length.
    package static func length(after moved: UInt64, longest: UInt64) -> UInt64 {
        min(longest, max(Self.shortestLength, moved))
    }

    /// Its offset in the file.
    package var offset: UInt64
    package var bytes: ByteBuffer

    package init(offset: UInt64, bytes: ByteBuffer) {
        self.offset = offset
        self.bytes = bytes
    }

    private enum Tag {
        /// Field 2, a message or bytes.
        static let content: UInt8 = 2 << 3 | 2
        /// Field 1, of 8 bytes.
        static let offset: UInt8 = 1 << 3 | 1
    }

    /// Makes an item whose bytes `read` writes.
    ///
    /// - Parameters:
    ///   - count: The number of bytes, ``maximumLength`` at most.
    ///   - read: Fills the given memory, of `count` bytes, or throws.
    package static func item<Failure: Error>(
        offset: UInt64,
        count: Int,
        read: (UnsafeMutableRawBufferPointer) throws(Failure) -> Void
    ) throws(Failure) -> ByteBuffer {
        // Two tags with lengths, and the offset.
        var item = ByteBufferAllocator().buffer(capacity: count + 24)
        let inner = 9 + 1 + Self.varintLength(count) + count
        item.writeInteger(Tag.content)
        self.writeVarint(inner, to: &item)
        item.writeInteger(Tag.offset)
        item.writeInteger(offset, endianness: .little)
        item.writeInteger(Tag.content)
        self.writeVarint(count, to: &item)
        try item.writeWithUnsafeMutableBytes(minimumWritableBytes: count) { memory throws(Failure) in
            try read(UnsafeMutableRawBufferPointer(rebasing: memory[..<count]))
            return count
        }
        return item
    }

    /// Makes items of the content from `offset` on, each of which, except the last, fills one frame.
    ///
    /// - Parameters:
    ///   - count: The number of bytes.
    ///   - read: Fills the given memory with the bytes from an offset on, or throws.
    package static func items<Failure: Error>(
        offset: UInt64,
        count: Int,
        read: (UnsafeMutableRawBufferPointer, _ offset: UInt64) throws(Failure) -> Void
    ) throws(Failure) -> [ByteBuffer] {
        var items: [ByteBuffer] = []
        var done = 0
        while done < count {
            let (start, length) = (offset + UInt64(done), min(Self.lengthInOneFrame, count - done))
            items.append(
                try Self.item(offset: start, count: length) { (memory) throws(Failure) in try read(memory, start) }
            )
            done += length
        }
        return items
    }

    /// Makes items of content in memory, like ``items(offset:count:read:)``.
    package static func items(offset: UInt64, of content: ByteBuffer) -> [ByteBuffer] {
        content.withUnsafeReadableBytes { bytes in
            Self.items(offset: offset, count: bytes.count) { memory, start in
                let position = Int(start - offset)
                memory.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[position..<(position + memory.count)]))
            }
        }
    }

    /// The part as an item.
    package var item: ByteBuffer {
        Self.item(offset: self.offset, count: self.bytes.readableBytes) { memory in
            self.bytes.withUnsafeReadableBytes { memory.copyMemory(from: $0) }
        }
    }

    /// Reads an item as this type writes them. Nil for any other, which may be the same message written otherwise.
    package init?(item: ByteBuffer) {
        var rest = item
        guard rest.readInteger(as: UInt8.self) == Tag.content,
            Self.readVarint(from: &rest) == rest.readableBytes
        else { return nil }
        guard rest.readInteger(as: UInt8.self) == Tag.offset,
            let offset = rest.readInteger(endianness: .little, as: UInt64.self),
            rest.readInteger(as: UInt8.self) == Tag.content,
            Self.readVarint(from: &rest) == rest.readableBytes
        else { return nil }
        self.init(offset: offset, bytes: rest)
    }

    private static func varintLength(_ value: Int) -> Int {
        max(1, (Int.bitWidth - value.leadingZeroBitCount + 6) / 7)
    }

    private static func writeVarint(_ value: Int, to buffer: inout ByteBuffer) {
        var rest = UInt64(value)
        while rest >= 0x80 {
            buffer.writeInteger(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        buffer.writeInteger(UInt8(rest))
    }

    /// Nil if there is none, or if it has more than four bytes, since lengths here are smaller.
    private static func readVarint(from buffer: inout ByteBuffer) -> Int? {
        var value = 0
        for shift in stride(from: 0, to: 28, by: 7) {
            guard let byte = buffer.readInteger(as: UInt8.self) else { return nil }
            value |= Int(byte & 0x7F) << shift
            if byte < 0x80 { return value }
        }
        return nil
    }
}
