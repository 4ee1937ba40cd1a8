// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// Memory for reads, which the connections of an event loop share.
///
/// NIO's own allocators keep the largest buffer that a connection has ever needed for as long as the connection lasts.
/// Here a connection keeps only the buffer of its first read, of 256 bytes. It reads into 2 KiB, and into larger
/// buffers only while it is busy: these are reused by the next connection that reads, as soon as the received bytes
/// have no other references.
package final class ReceiveBuffers: @unchecked Sendable {
    // Proof of Sendable: it is passed to its thread before it is used, and from then on accessed only on one event
    // loop.

    /// A size of buffers.
    private struct Level {
        let size: Int
        let maximumCount: Int
        var buffers: [ByteBuffer] = []
    }

    /// The size of the buffer that each connection has for itself, and uses for its first read, in bytes. Most first
    /// messages fit; a longer one takes two reads.
    static let firstSize = 256
    /// The size of the buffers of connections that are hardly busy, in bytes.
    static let smallSize = 2 << 10

    /// The latest small buffer, which a connection that is hardly busy uses again and again: not in an array, whose
    /// every change costs a check.
    private var latest: ByteBuffer?
    /// Shared buffers: 1.8 MiB at most are kept.
    private var levels = [
        Level(size: ReceiveBuffers.smallSize, maximumCount: 15), Level(size: 16 << 10, maximumCount: 16),
        Level(size: 64 << 10, maximumCount: 8), Level(size: 256 << 10, maximumCount: 4),
    ]

    package init() {}

    /// The number of levels above ``smallSize``.
    static let levelCount = 3

    static func size(ofLevel level: Int) -> Int { Self.smallSize << (level == 0 ? 0 : 1 + 2 * level) }

    /// Returns an empty buffer without other references.
    func take(level: Int) -> ByteBuffer {
        if level == 0, var buffer = self.latest.take(), buffer.modifyIfUniquelyOwned({ $0.clear() }) != nil {
            return buffer
        }
        // The latest first, whose memory is in the processor's cache. A buffer that is still referenced now belongs to
        // others, and is not waited for.
        while var buffer = self.levels[level].buffers.popLast() {
            if buffer.modifyIfUniquelyOwned({ $0.clear() }) != nil { return buffer }
        }
        return ByteBufferAllocator().buffer(capacity: self.levels[level].size)
    }

    /// Stores a reference to a used buffer, so that its memory is reused once it has no other references.
    package func put(_ buffer: ByteBuffer) {
        let size = buffer.storageCapacity
        if size == Self.smallSize, self.latest.keeps(buffer) { return }
        guard size >= Self.smallSize, let index = self.levels.firstIndex(where: { $0.size == size }),
            self.levels[index].buffers.count < self.levels[index].maximumCount
        else { return }
        self.levels[index].buffers.append(buffer)
    }

    /// The capacity of the buffers that are kept, in bytes.
    package var bytes: Int {
        self.levels.reduce(self.latest?.storageCapacity ?? 0) { $0 + $1.size * $1.buffers.count }
    }
}

extension ByteBuffer? {
    /// Stores a buffer where there is none.
    ///
    /// - Returns: Whether it was stored.
    fileprivate mutating func keeps(_ buffer: ByteBuffer) -> Bool {
        guard case .none = self else { return false }
        self = buffer
        return true
    }
}

/// Chooses the buffers for one connection's reads: shared ones, larger while reads fill them.
///
/// The channel must read once per event (`maxMessagesPerRead` 1): then NIO keeps only the first buffer, which is a
/// small one of the connection's own.
package struct SharedReceiveAllocator: RecvByteBufferAllocator {
    /// Unmanaged, because NIO copies the allocator for each of its calls.
    private let buffers: Unmanaged<ReceiveBuffers>
    private var hasRead = false
    private var level: UInt8 = 0
    /// The number of consecutive reads that would have fitted a buffer of the level below.
    private var smallReads: UInt8 = 0

    /// - Parameter buffers: The caller must retain them until the channel is closed.
    package init(_ buffers: ReceiveBuffers) {
        self.buffers = .passUnretained(buffers)
    }

    package func buffer(allocator: ByteBufferAllocator) -> ByteBuffer {
        self.hasRead
            ? self.buffers._withUnsafeGuaranteedRef { $0.take(level: Int(self.level)) }
            : allocator.buffer(capacity: ReceiveBuffers.firstSize)
    }

    package func nextBufferSize() -> Int? { nil }

    /// - Returns: True: NIO requests the next buffer instead of reusing its own.
    package mutating func record(actualReadBytes count: Int) -> Bool {
        guard self.hasRead else {
            self.hasRead = true
            return true
        }
        let level = Int(self.level)
        if count >= ReceiveBuffers.size(ofLevel: level) {
            self.level = UInt8(min(level + 1, ReceiveBuffers.levelCount))
            self.smallReads = 0
        } else if level > 0, count < ReceiveBuffers.size(ofLevel: level - 1) {
            self.smallReads += 1
            if self.smallReads == 2 {
                self.level -= 1
                self.smallReads = 0
            }
        } else {
            self.smallReads = 0
        }
        return true
    }
}
