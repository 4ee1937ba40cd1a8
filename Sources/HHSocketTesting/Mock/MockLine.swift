// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import HHSocketSystem
import NIOCore

/// One connection of a mock server: its life cycle and its output. Subclasses implement the protocols. Confined to the
/// server's event loop.
class MockLine: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// An item of the outbox, which is written in order.
    enum Output {
        case bytes(ByteBuffer)
        /// Bytes that are sent a few at a time, each part wrapped by `wrap`.
        case dribble(ByteBuffer, Dribble, wrap: (ByteBuffer) -> ByteBuffer)
        case halfClose
        /// Closes our direction, and closes the connection once the client has closed its own, or after a second:
        /// closing a connection with unread bytes would reset it, and the client might lose what was sent before.
        case linger
        case close
        case reset
    }

    /// The server's port; nil once the connection is closed, so that a reference to a connection does not keep the
    /// server.
    private(set) var port: MockPort?
    private(set) var number = -1
    private(set) var context: ChannelHandlerContext?
    private var outbox: Deque<Output> = []
    private var isDribbling = false
    private var isSilent = false
    /// Whether input is decoded. Bytes that arrive nonetheless, for example when the client closes, are kept.
    private(set) var isReading = true
    private var hasEnded = false

    init(port: MockPort) {
        self.port = port
    }

    // MARK: For subclasses

    /// The connection has its number.
    func begin() {}

    /// Handles received bytes.
    func receive(_ bytes: ByteBuffer) {}

    /// Decodes the bytes that were kept while it did not read.
    func resumeReading() {}

    /// Handles the end of the connection.
    func handleEnd() {}

    // MARK: The connection's life

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        if context.channel.isActive { self.start() }
    }

    func channelActive(context: ChannelHandlerContext) {
        self.start()
    }

    private func start() {
        guard self.number < 0, let number = self.port?.add(self) else { return }
        self.number = number
        self.begin()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        self.receive(self.unwrapInboundIn(data))
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.end()
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.end()
        self.context = nil
        self.outbox = []
        self.handleEnd()
        self.port?.remove(number: self.number)
        self.port = nil
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard case .inputClosed? = event as? ChannelEvent else { return }
        self.end()
        guard !self.isSilent else { return }
        self.append(.close)
        self.flush()
    }

    private func end() {
        guard !self.hasEnded, self.number >= 0 else { return }
        self.hasEnded = true
        self.port?.ended.append(self.number)
    }

    func closeNow() -> EventLoopFuture<Void>? {
        self.context?.channel.close()
    }

    // MARK: Reading

    func setSilent(_ isSilent: Bool) {
        self.isSilent = isSilent
        self.setReading(!isSilent)
    }

    func setReading(_ reads: Bool) {
        let isWoken = reads && !self.isReading
        self.isReading = reads
        if isWoken { self.resumeReading() }
        try? self.context?.channel.syncOptions?.setOption(.autoRead, value: reads)
    }

    // MARK: Writing

    /// Appends bytes to the outbox, unless the connection is silent.
    func send(
        _ bytes: ByteBuffer,
        _ dribble: Dribble? = nil,
        wrap: @escaping (ByteBuffer) -> ByteBuffer = { $0 }
    ) {
        guard !self.isSilent else { return }
        if let dribble {
            self.append(.dribble(bytes, dribble, wrap: wrap))
        } else {
            self.append(.bytes(wrap(bytes)))
        }
    }

    /// Appends to the outbox; consecutive bytes are joined.
    func append(_ output: Output) {
        if case .bytes(let more) = output, case .bytes(var bytes)? = self.outbox.last {
            self.outbox.removeLast()
            bytes.writeImmutableBuffer(more)
            self.outbox.append(.bytes(bytes))
        } else {
            self.outbox.append(output)
        }
    }

    /// Writes the outbox, up to an item that takes time.
    func flush() {
        guard let context = self.context, !self.isDribbling else { return }
        while let output = self.outbox.popFirst() {
            switch output {
            case .bytes(let bytes):
                context.writeAndFlush(self.wrapOutboundOut(bytes), promise: nil)
            case .dribble(let bytes, let dribble, let wrap):
                self.isDribbling = true
                return self.dribble(bytes, by: dribble, wrap: wrap)
            case .halfClose:
                context.close(mode: .output, promise: nil)
            case .linger where !self.hasEnded:
                self.afterWrites(context) { $0.close(mode: .output, promise: nil) }
                let channel = context.channel
                context.eventLoop.scheduleTask(in: .seconds(1)) { channel.close(promise: nil) }
            case .linger, .close:
                self.afterWrites(context) { $0.close(promise: nil) }
            case .reset:
                self.afterWrites(context) { $0.resetAndClose() }
            }
        }
    }

    /// Runs `body` after all writes: an empty write completes when all before it have.
    private func afterWrites(_ context: ChannelHandlerContext, _ body: @escaping @Sendable (any Channel) -> Void) {
        let channel = context.channel
        context.writeAndFlush(self.wrapOutboundOut(ByteBuffer())).whenComplete { _ in body(channel) }
    }

    private func dribble(_ bytes: ByteBuffer, by dribble: Dribble, wrap: @escaping (ByteBuffer) -> ByteBuffer) {
        guard let context = self.context else { return }
        var rest = bytes
        guard let chunk = rest.readSlice(length: min(dribble.bytes, rest.readableBytes)), chunk.readableBytes > 0,
            !self.isSilent
        else {
            self.isDribbling = false
            return self.flush()
        }
        let bound = NIOLoopBound((self, wrap), eventLoop: context.eventLoop)
        context.writeAndFlush(self.wrapOutboundOut(wrap(chunk))).assumeIsolated().whenComplete { [rest] _ in
            if dribble.interval > .zero, rest.readableBytes > 0 {
                self.port?.after(dribble.interval) { bound.value.0.dribble(rest, by: dribble, wrap: bound.value.1) }
            } else {
                // In another turn, which avoids recursion: a write that succeeds immediately completes immediately.
                bound.eventLoop.execute { bound.value.0.dribble(rest, by: dribble, wrap: bound.value.1) }
            }
        }
    }
}

extension Channel {
    /// Ends the connection with RST instead of FIN.
    func resetAndClose() {
        let lingers = (self as? any SocketOptionProvider)?.setSoLinger(linger(l_onoff: 1, l_linger: 0))
        guard let lingers else { return self.close(promise: nil) }
        lingers.whenComplete { _ in self.close(promise: nil) }
    }
}
