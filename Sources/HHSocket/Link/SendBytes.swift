import NIOCore

/// Bytes that are about to be written: small units are gathered in one buffer, large bodies are passed on as they are.
package struct SendBytes: Sendable {
    /// A buffer larger than this is not kept for the next turn.
    private static let largestKept = 256 << 10

    /// What the next small unit is written to, after ``prepare()``.
    package var gathered = ByteBuffer()
    /// Whether `gathered` is the channel's by now.
    private var isLent = false
    /// What leaves before `gathered`.
    private var before: [ByteBuffer] = []
    /// How many of those have been taken.
    private var taken = 0
    private var bytesBefore = 0

    package init() {}

    /// The number of bytes that are to be written.
    @inline(__always)
    package var count: Int { self.bytesBefore + (self.isLent ? 0 : self.gathered.readableBytes) }

    /// Makes room in ``gathered``.
    @inline(__always)
    package mutating func prepare() {
        guard self.isLent else { return }
        self.isLent = false
        // Used again, if the channel has let go of it; else there is another one now.
        self.gathered.clear()
    }

    /// Appends a buffer without copying it.
    package mutating func append(_ buffer: ByteBuffer) {
        guard buffer.readableBytes > 0 else { return }
        if !self.isLent, self.gathered.readableBytes > 0 {
            self.before.append(self.gathered)
            self.bytesBefore += self.gathered.readableBytes
            // Room for what stands between two large bodies.
            self.gathered = ByteBufferAllocator().buffer(capacity: 256)
        }
        self.before.append(buffer)
        self.bytesBefore += buffer.readableBytes
    }

    /// Takes what is to be written next; nil where nothing is left.
    package mutating func popFirst() -> ByteBuffer? {
        if self.taken < self.before.count {
            let first = self.before[self.taken]
            self.bytesBefore -= first.readableBytes
            self.taken += 1
            if self.taken == self.before.count {
                self.before.removeAll(keepingCapacity: true)
                self.taken = 0
            }
            return first
        }
        guard !self.isLent, self.gathered.readableBytes > 0 else { return nil }
        self.isLent = true
        return self.gathered
    }

    /// Lets go of memory that is large for what it held. To be called when what was taken has been flushed.
    package mutating func recycle() {
        let capacity = self.gathered.capacity
        guard self.isLent, capacity > 4_096 else { return }
        if capacity > Self.largestKept || self.gathered.readableBytes < capacity / 8 { self.gathered = ByteBuffer() }
    }

    package mutating func removeAll() {
        self = SendBytes()
    }
}
