// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

@Suite struct BufferPoolTests {
    private func address(_ buffer: ByteBuffer) -> UnsafeRawPointer? {
        buffer.withVeryUnsafeBytes { $0.baseAddress }
    }

    /// Takes a buffer, fills it, puts it back, and returns it.
    private func use(_ pool: BufferPool, _ bytes: [UInt8]) -> ByteBuffer {
        var buffer = pool.take(capacity: bytes.count)
        #expect(buffer.readableBytes == 0)
        buffer.writeBytes(bytes)
        pool.put(buffer)
        return buffer
    }

    @Test func memoryIsUsedAgainOnceItIsFree() {
        let pool = BufferPool()
        let first = self.address(self.use(pool, Array(repeating: 1, count: 4_000)))
        #expect(self.address(self.use(pool, Array(repeating: 2, count: 3_000))) == first)
    }

    @Test func bytesThatAreKeptStay() {
        let pool = BufferPool()
        var kept: [(slice: ByteBuffer?, bytes: [UInt8])] = []
        for round in 0..<100 {
            let bytes = (0..<1_000).map { UInt8(truncatingIfNeeded: $0 &* round) }
            let buffer = self.use(pool, bytes)
            if round % 3 > 0 { kept.append((buffer.getSlice(at: 10, length: 500), Array(bytes[10..<510]))) }
            // Some buffers are kept for a while.
            if kept.count > 20 { kept.removeFirst(7) }
            for (slice, bytes) in kept { #expect(slice.map { Array($0.readableBytesView) } == bytes) }
        }
    }

    @Test func thePoolIsBounded() {
        let pool = BufferPool(maximumBytes: 100_000)
        // All buffers are in use, so all differ.
        let kept = (0..<30).map { self.use(pool, Array(repeating: UInt8($0), count: 4_096)) }
        #expect(Set(kept.map(self.address)).count == 30)
        #expect(pool.bytes == 24 * 4_096)
        // This buffer is too large to be kept.
        _ = self.use(pool, Array(repeating: 1, count: 300_000))
        #expect(pool.bytes == 24 * 4_096)
        for (number, buffer) in kept.enumerated() {
            #expect(buffer.readableBytesView.allSatisfy { $0 == UInt8(number) })
        }
        for _ in 0..<100 { _ = self.use(pool, [1, 2, 3]) }
        #expect(pool.bytes < 100_000)
    }

    @Test func fewBytesDoNotHoldALargeBuffer() {
        let pool = BufferPool()
        _ = self.use(pool, Array(repeating: 1, count: 200_000))
        #expect(pool.take(capacity: 2_000).capacity == 2_048)
        #expect(pool.take(capacity: 60_000, excess: 2).capacity == 65_536)
        #expect(pool.take(capacity: 60_000).capacity == 262_144)
    }
}
