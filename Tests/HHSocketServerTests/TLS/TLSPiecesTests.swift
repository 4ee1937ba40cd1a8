// SPDX-License-Identifier: Apache-2.0
import NIOCore
import NIOEmbedded
import TestSupport
import Testing

@testable import HHSocketServer

@Suite final class TLSPiecesTests {
    /// Records the writes to TLS, and the sum of each flush.
    private final class Recorder: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        var bytes: [UInt8] = []
        var flushes: [Int] = []
        var onFlush: (() -> Void)?
        private var sum = 0
        private var promises: [EventLoopPromise<Void>] = []

        func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
            let written = self.unwrapOutboundIn(data)
            self.sum += written.readableBytes
            self.bytes += Array(written.readableBytesView)
            if let promise { self.promises.append(promise) }
        }

        func flush(context: ChannelHandlerContext) {
            if self.sum > 0 { self.flushes.append(self.sum) }
            self.sum = 0
            let promises = self.promises
            self.promises = []
            for promise in promises { promise.succeed() }
            let onFlush = self.onFlush
            self.onFlush = nil
            onFlush?()
        }
    }

    private let channel = EmbeddedChannel()
    private let recorder = Recorder()

    init() throws {
        try self.channel.pipeline.syncOperations.addHandlers(self.recorder, TLSPieces())
    }

    // Otherwise its pipeline retains itself forever.
    deinit { _ = try? self.channel.finish(acceptAlreadyClosed: true) }

    private func write(_ byte: UInt8, _ count: Int) -> EventLoopFuture<Void> {
        self.channel.write(ByteBuffer(repeating: byte, count: count))
    }

    @Test func littleGoesStraightOn() {
        _ = self.write(1, 100)
        _ = self.write(2, 200)
        #expect(self.recorder.bytes.count == 300)
        self.channel.flush()
        #expect(self.recorder.flushes == [300])
    }

    @Test func muchIsFlushedInPiecesInItsOrder() throws {
        var done: [Int] = []
        let lengths = [10, 100_000, 0, 5, 70_000, 31 << 10, 1]
        for (index, length) in lengths.enumerated() {
            self.write(UInt8(index), length).assumeIsolated().whenSuccess { done.append(index) }
        }
        self.channel.flush()
        #expect(self.recorder.bytes == lengths.enumerated().flatMap { Array(repeating: UInt8($0), count: $1) })
        #expect(self.recorder.flushes.allSatisfy { $0 <= TLSPieces.length })
        #expect(self.recorder.flushes.count <= lengths.reduce(0, +) / TLSPieces.length + 2)
        #expect(done == Array(lengths.indices))
    }

    @Test func piecesMayBecomeLonger() throws {
        _ = self.write(1, 50_000)
        self.channel.flush()
        try self.channel.pipeline.syncOperations.handler(type: TLSPieces.self).carryContent()
        _ = self.write(2, 200_000)
        self.channel.flush()
        #expect(self.recorder.bytes == Array(repeating: 1, count: 50_000) + Array(repeating: 2, count: 200_000))
        #expect(self.recorder.flushes.max() == TLSPieces.contentLength)
        #expect(self.recorder.flushes.count <= 4 + 4)
    }

    @Test func unflushedWritesWait() {
        _ = self.write(1, 100_000)
        #expect(self.recorder.bytes.isEmpty)
        self.channel.flush()
        #expect(self.recorder.bytes.count == 100_000)
    }

    @Test func writesThatAFlushCausesComeBehind() {
        _ = self.write(1, 100_000)
        self.recorder.onFlush = {
            _ = self.write(2, 50_000)
            self.channel.flush()
        }
        self.channel.flush()
        self.channel.flush()
        #expect(self.recorder.bytes == Array(repeating: 1, count: 100_000) + Array(repeating: 2, count: 50_000))
    }

    @Test func randomWritesAreAllSentInOrder() {
        var random = SeededGenerator(seed: 7)
        var expected: [UInt8] = []
        for step in 0..<scaled(500) {
            let count = Int.random(in: 0...(Bool.random(using: &random) ? 100 : 90_000), using: &random)
            _ = self.write(UInt8(truncatingIfNeeded: step), count)
            expected += Array(repeating: UInt8(truncatingIfNeeded: step), count: count)
            if Int.random(in: 0..<3, using: &random) == 0 {
                self.channel.flush()
                #expect(self.recorder.bytes.count == expected.count)
            }
        }
        self.channel.flush()
        #expect(self.recorder.bytes == expected)
        #expect(self.recorder.flushes.allSatisfy { $0 <= TLSPieces.length })
    }

    @Test func heldWritesFailWithTheConnection() throws {
        let held = self.write(1, 100_000)
        _ = self.channel.close()
        #expect(throws: ChannelError.self) { try held.wait() }
    }
}

@Suite struct TLSReadAllocatorTests {
    /// NIO's pool keeps only the first buffer; the others are released when their bytes are decrypted.
    @Test func noLargeBufferIsKept() {
        var pool = NIOPooledRecvBufferAllocator(
            capacity: Int(TLSReadAllocator.readsAtATime),
            recvAllocator: TLSReadAllocator()
        )
        var capacities: [Int] = []
        for count in [1_500, 16_384, 16_384, 100] {
            let (buffer, _) = pool.buffer(allocator: ByteBufferAllocator()) { $0.writeRepeatingByte(1, count: count) }
            pool.record(actualReadBytes: count)
            #expect(buffer.readableBytes == count)
            capacities.append(buffer.capacity)
        }
        #expect(capacities == [2_048, 16_384, 16_384, 16_384])
        #expect(pool.count == 1)
    }

    /// The pages of a new buffer would be cleared for each read.
    @Test func theBufferOfFilesIsUsedAgain() {
        var pool = NIOPooledRecvBufferAllocator(
            capacity: Int(TLSReadAllocator.readsAtATime),
            recvAllocator: TLSReadAllocator()
        )
        func read(_ count: Int) -> ByteBuffer {
            defer { pool.record(actualReadBytes: count) }
            return pool.buffer(allocator: ByteBufferAllocator()) { $0.writeRepeatingByte(1, count: count) }.0
        }
        func address(_ buffer: ByteBuffer) -> UnsafeRawPointer? { buffer.withUnsafeReadableBytes { $0.baseAddress } }
        _ = read(1_500)
        pool.recvAllocator = TLSReadAllocator(carriesContent: true)
        var buffer = read(65_536)
        #expect(buffer.capacity == 65_536)
        let first = address(buffer)
        buffer = ByteBuffer()
        buffer = read(100)
        #expect(address(buffer) == first)
        // A retained buffer is not overwritten.
        let other = read(65_536)
        #expect(address(other) != first && other.capacity == 65_536)
        #expect(buffer.readableBytes == 100 && pool.count == 1)
    }
}
