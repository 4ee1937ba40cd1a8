// SPDX-License-Identifier: Apache-2.0
import DequeModule
import NIOCore

/// Follows TLS, and passes flushed bytes to it in pieces.
///
/// NIOSSL encrypts everything that is flushed at once into one buffer, which never shrinks
/// (`maximumPreservedOutboundBufferCapacity` has no effect in swift-nio-ssl 2.37): a connection that has once sent a
/// mebibyte would keep a buffer of two.
final class TLSPieces: ChannelOutboundHandler, ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// With the header and trailer of its record less than 16 KiB, the initial size of NIOSSL's buffer.
    static let length = 15 << 10
    /// The length for connections that carry files: four records, and so a quarter of the system calls.
    static let contentLength = 63 << 10

    private struct Write {
        var bytes: ByteBuffer
        var promise: EventLoopPromise<Void>?
    }

    /// The greatest number of bytes in a piece.
    private var length = TLSPieces.length
    /// The number of bytes passed to TLS since the last flush.
    private var unflushed = 0
    /// Writes that exceed the size of one piece.
    private var held: Deque<Write> = []
    /// The number of these that were flushed.
    private var flushed = 0
    private var isFlushing = false

    /// The connection carries files from now on.
    func carryContent() { self.length = Self.contentLength }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        let bytes = self.unwrapOutboundIn(data)
        // Nearly always.
        if self.held.isEmpty, self.unflushed + bytes.readableBytes <= self.length {
            self.unflushed += bytes.readableBytes
            context.write(data, promise: promise)
        } else {
            self.held.append(Write(bytes: bytes, promise: promise))
        }
    }

    func flush(context: ChannelHandlerContext) {
        self.flushed = self.held.count
        // A nested flush is performed by the outer one.
        guard !self.isFlushing else { return }
        self.isFlushing = true
        defer { self.isFlushing = false }
        repeat {
            self.unflushed = 0
            context.flush()
            self.giveNext(context)
        } while self.unflushed > 0
        if self.held.isEmpty, self.flushed == 0 { self.held = [] }
    }

    /// Gives TLS the next piece.
    private func giveNext(_ context: ChannelHandlerContext) {
        while self.flushed > 0, let first = self.held.first {
            let room = self.length - self.unflushed
            if first.bytes.readableBytes <= room {
                self.held.removeFirst()
                self.flushed -= 1
                // An empty write completes when everything before it has been sent, so it counts.
                self.unflushed += max(1, first.bytes.readableBytes)
                context.write(self.wrapOutboundOut(first.bytes), promise: first.promise)
            } else {
                guard room > 0, let piece = self.held[0].bytes.readSlice(length: room) else { return }
                self.unflushed += room
                context.write(self.wrapOutboundOut(piece), promise: nil)
            }
        }
    }

    func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        if mode != .input { self.fail(ChannelError.ioOnClosedChannel) }
        context.close(mode: mode, promise: promise)
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.fail(ChannelError.ioOnClosedChannel)
        context.fireChannelInactive()
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.fail(ChannelError.ioOnClosedChannel)
    }

    private func fail(_ error: any Error) {
        let held = self.held
        self.held = []
        self.flushed = 0
        for write in held { write.promise?.fail(error) }
    }
}
