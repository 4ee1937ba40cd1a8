// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct ReceiveBuffersTests {
    /// Reads like NIO's channel, which keeps one buffer (`maxMessagesPerRead` 1).
    private struct Reader {
        var pool: NIOPooledRecvBufferAllocator

        init(_ buffers: ReceiveBuffers) {
            self.pool = NIOPooledRecvBufferAllocator(capacity: 1, recvAllocator: SharedReceiveAllocator(buffers))
        }

        /// Reads up to `available` bytes. Returns their buffer, and its capacity.
        mutating func read(_ available: Int) -> (buffer: ByteBuffer, room: Int) {
            let (buffer, room) = self.pool.buffer(allocator: ByteBufferAllocator()) { buffer in
                let room = buffer.writableBytes
                buffer.writeRepeatingByte(1, count: min(available, room))
                return room
            }
            self.pool.record(actualReadBytes: buffer.readableBytes)
            return (buffer, room)
        }
    }

    @Test func bufferGrowsWithWhatComesAndShrinksAgain() {
        let buffers = ReceiveBuffers()
        var reader = Reader(buffers)
        let bytes: [Int] = (0..<7).map { _ in
            let (buffer, room) = reader.read(1 << 20)
            buffers.put(buffer)
            return room
        }
        #expect(bytes == [256, 2_048, 16_384, 65_536, 262_144, 262_144, 262_144])
        let smaller: [Int] = (0..<8).map { _ in reader.read(100).room >> 10 }
        #expect(smaller == [256, 256, 64, 64, 16, 16, 2, 2])
    }

    @Test func memoryIsUsedAgainOnceItIsFree() {
        let buffers = ReceiveBuffers()
        var readers = [Reader(buffers), Reader(buffers)]
        func address(_ buffer: ByteBuffer) -> Int {
            buffer.withUnsafeReadableBytes { Int(bitPattern: $0.baseAddress) }
        }
        for index in readers.indices { for _ in 0..<4 { _ = readers[index].read(1 << 20) } }
        var addresses: Set<Int> = []
        for number in 0..<10 {
            let (buffer, room) = readers[number % 2].read(1 << 20)
            #expect(room == 256 << 10)
            addresses.insert(address(buffer))
            buffers.put(buffer)
        }
        #expect(addresses.count == 1)
        // A retained buffer is not overwritten.
        let kept = readers[0].read(1 << 20).buffer
        buffers.put(kept)
        let next = readers[1].read(1 << 20).buffer
        #expect(address(next) != address(kept))
    }

    @Test func buffersAreBounded() {
        let buffers = ReceiveBuffers()
        for _ in 0..<100 { for level in 0...3 { buffers.put(buffers.take(level: level)) } }
        var kept: [ByteBuffer] = []
        for _ in 0..<100 { for level in 0...3 { kept.append(buffers.take(level: level)) } }
        for buffer in kept { buffers.put(buffer) }
        #expect(buffers.bytes == (1_792 + 32) << 10)
        buffers.put(ByteBuffer(string: "no read brought this"))
        #expect(buffers.bytes == (1_792 + 32) << 10)
    }

    /// Idle connections keep nothing but the buffer of their first read.
    @Test func connectionsThatReadLittleShareABuffer() {
        let buffers = ReceiveBuffers()
        var readers = (0..<100).map { _ in Reader(buffers) }
        func address(_ buffer: ByteBuffer) -> Int {
            buffer.withUnsafeReadableBytes { Int(bitPattern: $0.baseAddress) }
        }
        let first = readers.indices.map { readers[$0].read(16) }
        #expect(first.allSatisfy { $0.room == 256 })
        #expect(Set(first.map { address($0.buffer) }).count == readers.count)
        var addresses: Set<Int> = []
        for _ in 0..<3 {
            for index in readers.indices {
                let (buffer, room) = readers[index].read(16)
                #expect(room == 2 << 10)
                addresses.insert(address(buffer))
                buffers.put(buffer)
            }
        }
        #expect(addresses.count == 1)
    }
}
