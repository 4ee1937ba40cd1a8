// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// Memory for bytes that are needed for about one turn: a buffer is reused as soon as it has no other references. A
/// buffer that is retained elsewhere leaves the pool.
///
/// A server has a pool for each thread, not for each connection: idle connections hold nothing, and reused memory is
/// still in the processor's cache.
package final class BufferPool: @unchecked Sendable {
    // Proof of Sendable: it is passed to its thread before it is used, and from then on accessed only on one event
    // loop.

    /// The largest buffer that is kept, in bytes.
    private static let largestKept = 256 << 10
    /// The largest number of buffers, all of which are searched.
    private static let maximumCount = 32
    /// Buffers up to this capacity serve for any number of bytes.
    private static let smallCapacity = 512

    /// The capacity of all buffers at most, in bytes.
    private let maximumBytes: Int
    /// The buffers, the oldest first. Some are still in use.
    private var buffers: [ByteBuffer] = []
    /// The capacity of all of them, in bytes.
    package private(set) var bytes = 0

    /// - Parameter maximumBytes: The capacity of all buffers at most; 2 MiB by default.
    package init(maximumBytes: Int = 2 << 20) {
        self.maximumBytes = maximumBytes
    }

    /// Returns an empty buffer without other references.
    ///
    /// - Parameters:
    ///   - capacity: The number of bytes to write.
    ///   - excess: The capacity may be this many times as large; use 2 if the bytes are often retained. A buffer's
    ///     capacity is a power of two.
    package func take(capacity: Int, excess: Int = 8) -> ByteBuffer {
        let range = capacity...max(Self.smallCapacity, capacity, capacity * excess)
        for index in self.buffers.indices {
            let isFree = self.buffers[index].modifyIfUniquelyOwned { buffer in
                guard range.contains(buffer.capacity) else { return false }
                buffer.clear()
                return true
            }
            if isFree == true {
                let buffer = self.buffers.remove(at: index)
                self.bytes -= buffer.capacity
                return buffer
            }
        }
        return ByteBufferAllocator().buffer(capacity: capacity)
    }

    /// Keeps a buffer until it has no other references, for a later ``take(capacity:excess:)``.
    package func put(_ buffer: ByteBuffer) {
        guard buffer.capacity > 0, buffer.capacity <= Self.largestKept else { return }
        self.buffers.append(buffer)
        self.bytes += buffer.capacity
        while self.bytes > self.maximumBytes || self.buffers.count > Self.maximumCount {
            self.bytes -= self.buffers.removeFirst().capacity
        }
    }
}
