// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Bytes that are about to be written: small units are gathered in one buffer, large bodies are passed on without a
/// copy.
package struct SendBytes: Sendable {
    /// The largest buffer that is kept for the next turn.
    private static let largestKept = 256 << 10
    /// The largest buffer that is kept while nothing is sent.
    private static let largestKeptInRest = 512

    /// The buffer to which the next small unit is written, after ``prepare()``.
    package var gathered = ByteBuffer()
    /// Whether `gathered` is the channel's by now.
    private var isLent = false
    /// A large body, and the bytes gathered before it; both precede `gathered`. Usually there is no other, since links
    /// write it at once. Two separate properties, because a value can be moved out of each, while a pair would be
    /// copied.
    private var body: ByteBuffer?
    private var gatheredBeforeBody: ByteBuffer?
    /// Buffers that follow these, and precede `gathered`.
    private var others: [ByteBuffer] = []
    /// The number of bytes in all of them.
    private var bytesBefore = 0

    package init() {}

    /// The number of bytes to write.
    @inline(__always)
    package var count: Int { self.bytesBefore + (self.isLent ? 0 : self.gathered.readableBytes) }

    /// Makes room in ``gathered``.
    @inline(__always)
    package mutating func prepare() {
        guard self.isLent else { return }
        self.isLent = false
        // Reused if the channel has released it. If not, the peer is slow, and the channel may get many of these: each
        // is only as large as its bytes.
        guard self.gathered.modifyIfUniquelyOwned({ $0.clear() }) == nil else { return }
        self.gathered = ByteBuffer()
    }

    /// Appends a buffer without copying it.
    package mutating func append(_ buffer: consuming ByteBuffer) {
        guard buffer.readableBytes > 0 else { return }
        let isFirst = self.setGatheredAside()
        self.setBody(buffer, isFirst)
    }

    /// Appends a slice of a payload without copying it.
    ///
    /// - Parameters:
    ///   - sent: The number of bytes of the payload that were appended before, increased by the slice's.
    ///   - limit: The most bytes of the slice.
    /// - Returns: Whether it was the last one.
    package mutating func appendSlice(of payload: ByteBuffer, after sent: inout Int, limit: Int) -> Bool {
        let length = min(limit, payload.readableBytes - sent)
        if let slice = payload.getSlice(at: payload.readerIndex + sent, length: length) { self.append(slice) }
        sent += length
        return sent == payload.readableBytes
    }

    /// Appends a body, followed by bytes that `writeTrailer` writes.
    @inline(__always)
    mutating func append(_ buffer: consuming ByteBuffer, _ writeTrailer: (ByteBuffer, inout ByteBuffer) -> Void) {
        guard buffer.readableBytes > 0 else { return }
        let isFirst = self.setGatheredAside()
        self.prepare()
        writeTrailer(buffer, &self.gathered)
        self.setBody(buffer, isFirst)
    }

    /// Places the gathered bytes before what is appended next.
    ///
    /// - Returns: Whether nothing else precedes it.
    private mutating func setGatheredAside() -> Bool {
        let isFirst = !self.hasBodies
        guard !self.isLent, self.gathered.readableBytes > 0 else { return isFirst }
        self.bytesBefore += self.gathered.readableBytes
        // Room for the bytes between two large bodies.
        var gathered = ByteBufferAllocator().buffer(capacity: 256)
        swap(&gathered, &self.gathered)
        if isFirst { self.gatheredBeforeBody = gathered } else { self.others.append(gathered) }
        return isFirst
    }

    private mutating func setBody(_ buffer: consuming ByteBuffer, _ isFirst: Bool) {
        self.bytesBefore += buffer.readableBytes
        if isFirst { self.body = buffer } else { self.others.append(buffer) }
    }

    /// Whether there are large bodies.
    @inline(__always)
    package var hasBodies: Bool { self.bytesBefore > 0 }

    /// Removes the next buffer to write, up to the last large body. Nil after that; then call ``takeGathered()``.
    package mutating func popFirst() -> ByteBuffer? {
        guard let first = self.gatheredBeforeBody.take() ?? self.body.take() ?? self.popOther() else { return nil }
        self.bytesBefore -= first.readableBytes
        return first
    }

    private mutating func popOther() -> ByteBuffer? { self.others.isEmpty ? nil : self.others.removeFirst() }

    /// Removes the bytes gathered after all large bodies; nil if there are none.
    package mutating func takeGathered() -> ByteBuffer? {
        guard !self.isLent, self.gathered.readableBytes > 0 else { return nil }
        self.isLent = true
        return self.gathered
    }

    /// Releases memory that is much larger than its last contents. Call it after the removed bytes have been flushed.
    package mutating func recycle() {
        let capacity = self.gathered.capacity
        guard self.isLent, capacity > 4_096 else { return }
        if capacity > Self.largestKept || self.gathered.readableBytes < capacity / 8 { self.gathered = ByteBuffer() }
    }

    /// Whether much memory is reserved for future bytes, and nothing is to be written.
    var keepsMuch: Bool { self.count == 0 && self.gathered.capacity > Self.largestKeptInRest }

    /// The size of the buffer that is reserved for future bytes.
    var keptBytes: Int { self.gathered.capacity }

    /// Releases that memory.
    mutating func releaseRest() {
        if self.keepsMuch { self.removeAll() }
    }

    package mutating func removeAll() {
        self = SendBytes()
    }
}
