// SPDX-License-Identifier: Apache-2.0
import DequeModule
package import NIOCore

extension ByteBuffer {
    /// Whether these bytes are less than half of the memory that they keep, as most slices of a read are.
    fileprivate var isSmallSlice: Bool { 2 * self.readableBytes < self.storageCapacity }

    /// Whether these bytes are between a quarter and half of the memory that they keep. Copying such a slice costs more
    /// than its memory, which is charged instead where others share it: once for all slices of a read.
    var isLargeSlice: Bool { self.isSmallSlice && 4 * self.readableBytes >= self.storageCapacity }

    /// Identifies the memory that these bytes keep, while it exists.
    fileprivate var storageIdentity: UInt {
        self.withVeryUnsafeBytesWithStorageManagement { UInt(bitPattern: $1.toOpaque()) }
    }

    /// A buffer with these bytes that may be kept: a copy if they are less than half of the memory that they keep.
    ///
    /// Received payloads are slices of the buffer of a read. Everything that outlives the batch in which it was
    /// received is kept in this form, so that a peer cannot make us hold 256 KiB with one byte; and charged by its
    /// `storageCapacity`, which is then at most twice its length.
    package var detached: ByteBuffer {
        guard self.isSmallSlice else { return self }
        return self.withUnsafeReadableBytes { $0.isEmpty ? ByteBuffer() : ByteBuffer(bytes: $0) }
    }

    /// The memory that a decoder keeps for bytes that it has not read, in bytes: the whole buffer of a read that was
    /// not consumed completely.
    package var unreadCapacity: Int { self.readableBytes > 0 ? self.storageCapacity : 0 }

    /// The distance behind the last written byte from which on the memory of a growing buffer does not count, in bytes.
    private static let untouchedDistance = 64 << 10

    /// The memory of a buffer to which the bytes of an incomplete unit are only appended, in bytes.
    ///
    /// Its capacity doubles while the unit arrives. What lies far behind the bytes has not been touched, and does not
    /// count: otherwise one read would be charged with megabytes, and a few connections would exceed every limit
    /// before any of them could be made to wait.
    ///
    /// - Parameters:
    ///   - capacity: The capacity of the buffer's memory.
    ///   - end: The end of the written bytes.
    @inline(__always)
    static func growing(capacity: Int, writtenTo end: Int) -> Int { min(capacity, end + Self.untouchedDistance) }

    /// The memory that ``detached`` keeps, in bytes.
    package var detachedCapacity: Int {
        guard self.isSmallSlice else { return self.storageCapacity }
        // Allocators round up to a power of two.
        return self.readableBytes == 0 ? 0 : 2 * self.readableBytes
    }
}

/// The memory that large bodies keep in a channel whose peer does not take them: slices of one read have it in common.
struct PinnedBytes: Sendable {
    private struct Storage: Sendable {
        /// Identifies the memory while it exists.
        var identity: UInt
        var capacity: Int
        /// The number of bytes that the link had sent with the last slice of it.
        var end: Int
    }

    /// The largest memory of which a small slice is copied, that of the largest reads.
    private static let largestCopied = 256 << 10

    private var earlier: Deque<Storage> = []
    /// The last one, of which the next body is often a slice too.
    private var latest: Storage?
    /// The sum of the memory, in bytes.
    private(set) var bytes = 0

    /// Returns the body as it is handed to a channel.
    ///
    /// A body that is a small slice of a read is copied if the peer is slow, unless the channel has that memory
    /// already or the slice is a large part of it. A long payload, which is sent in slices, stays as a whole until the
    /// last one has left.
    ///
    /// - Parameters:
    ///   - isSlow: Whether the channel has bytes that the peer has not taken.
    ///   - bytesSent: The number of bytes that the link has sent before this body.
    mutating func bodyForChannel(_ body: ByteBuffer, isSlow: Bool, bytesSent: Int) -> ByteBuffer {
        guard body.isSmallSlice else { return body }
        let identity = body.storageIdentity
        let end = bytesSent + body.readableBytes
        if self.latest?.identity == identity {
            self.latest?.end = end
        } else if isSlow, body.storageCapacity <= Self.largestCopied, !body.isLargeSlice {
            return body.detached
        } else {
            if let latest = self.latest { self.earlier.append(latest) }
            self.latest = Storage(identity: identity, capacity: body.storageCapacity, end: end)
            self.bytes += body.storageCapacity
        }
        return body
    }

    /// The peer has taken this many bytes of the link's.
    mutating func taken(_ count: Int) {
        while let first = self.earlier.first, first.end <= count {
            self.bytes -= first.capacity
            self.earlier.removeFirst()
        }
        guard self.earlier.isEmpty, let latest = self.latest, latest.end <= count else { return }
        self.bytes -= latest.capacity
        self.latest = nil
    }

    /// Releases memory that is reserved for future bodies.
    mutating func releaseRest() {
        if self.bytes == 0 { self = PinnedBytes() }
    }
}

/// The memory that large slices of reads keep while they wait: those of one read have it in common.
struct SharedReads: Sendable {
    private struct Read: Sendable {
        var slices: Int
        var capacity: Int
    }

    private var reads: [UInt: Read] = [:]
    /// The sum of the memory, in bytes.
    private(set) var bytes = 0

    mutating func add(_ slice: ByteBuffer) {
        let identity = slice.storageIdentity
        guard (self.reads[identity]?.slices += 1) == nil else { return }
        self.reads[identity] = Read(slices: 1, capacity: slice.storageCapacity)
        self.bytes += slice.storageCapacity
    }

    mutating func remove(_ slice: ByteBuffer) {
        let identity = slice.storageIdentity
        guard var read = self.reads[identity] else { return }
        read.slices -= 1
        self.reads[identity] = read.slices > 0 ? read : nil
        if read.slices == 0 { self.bytes -= read.capacity }
    }
}
