// SPDX-License-Identifier: Apache-2.0
import DequeModule
import NIOCore

/// Stands behind TLS, and gives it what is flushed in pieces.
///
/// NIOSSL encrypts all that is flushed at once into one buffer, which never becomes smaller
/// (`maximumPreservedOutboundBufferCapacity` has no effect in swift-nio-ssl 2.37): a connection that has once sent a
/// mebibyte would keep a buffer of two.
final class TLSPieces: ChannelOutboundHandler, ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// With the header and trailer of its record below 16 KiB, which NIOSSL's buffer has from the start.
    static let length = 15 << 10
    /// The length for connections that carry files: four records, and so a quarter of the system calls.
    static let contentLength = 63 << 10

    private struct Write {
        var bytes: ByteBuffer
        var promise: EventLoopPromise<Void>?
    }

    /// The greatest number of bytes in a piece.
    var length = TLSPieces.length
    /// The bytes that TLS was given since the last flush.
    private var unflushed = 0
    /// Writes that are too much to be given at once.
    private var held: Deque<Write> = []
    /// Of these, those that were flushed.
    private var flushed = 0
    private var isFlushing = false

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
        // A flush that is called by what a flush causes is done by that.
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
                // A write of nothing tells when all before it has left; so it counts.
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
