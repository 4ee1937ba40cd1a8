// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// Carries the bytes of a link as the binary messages of a WebSocket. It is between TLS and the link, which does not
/// know it; other links have no cost from it.
///
/// It is added when the opening handshake is over. The link's end of output becomes our close frame, and the peer's
/// close frame becomes the end of the link's input at a server, and the end of the link at a client.
package final class WebSocketCarriage: ChannelDuplexHandler {
    package typealias InboundIn = ByteBuffer
    package typealias InboundOut = ByteBuffer
    package typealias OutboundIn = ByteBuffer
    package typealias OutboundOut = ByteBuffer

    /// The number of gathered bytes above which they are passed on unflushed, so that the channel can report when it
    /// holds too many: two messages of the largest length, in which two bodies of 64 KiB are sent before a link
    /// flushes.
    private static let gatherLimit = 2 * WebSocketEncoder.maximumStreamMessageLength

    /// The memory of contexts of compression is freed when it was not used for this time, or up to twice as long.
    private static let idleTime = TimeAmount.seconds(5)

    private let role: WebSocketRole
    private let buffers: BufferPool
    private let receiveBuffers: ReceiveBuffers?
    private var decoder: WebSocketDecoder
    private var encoder: WebSocketEncoder
    private var writer = WebSocketStreamWriter()
    private var out = SendBytes()
    /// Completes with the next write, for writes without bytes.
    private var promise: EventLoopPromise<Void>?
    /// The payload of the last ping that is not answered.
    private var ping: OwnedBytes?
    /// The number of pings and pongs so far.
    package private(set) var controlFrames = 0
    private var closing: ClosingHandshake
    /// The reason that the link has given for its end.
    private var reason: CloseReason?
    private var violation: WebSocketViolation?
    /// The meaning of the peer's last bytes for the link, which is notified when it has handled the earlier ones.
    private var news: News?
    private let time: SocketTime
    private var timer: TimeAlarm?
    /// Frees the memory of contexts that are not used.
    private var aging: TimeAlarm?
    /// The charge for bytes that are not inflated yet.
    private var waiting: Hold
    private var context: ChannelHandlerContext?
    private var work = Work()

    /// The state of inflating in slices: the event loop's other connections have their turn in between.
    private struct Work {
        /// Whether the link has requested bytes while some are available.
        var isReadHeld = false
        /// Whether the peer has closed its direction, after bytes that remain to be inflated.
        var isInputClosed = false
        var timer: Scheduled<Void>?
        /// The time between two slices, in which the event loop polls its channels.
        static let pause = TimeAmount.microseconds(50)
    }

    private enum News {
        case closed(WebSocketClose)
        case violated(WebSocketViolation)
    }

    /// - Parameters:
    ///   - role: Our side.
    ///   - acceptsText: Whether the peer may also send text messages, whose bytes are not checked; false by default.
    ///   - deflate: The agreement on compression, if there is one.
    ///   - compression: Our settings for it.
    ///   - buffers: Memory for masked and unmasked bytes, which the connections of an event loop may share; by default
    ///     its own.
    ///   - receiveBuffers: The source of the channel's read buffers; nil, the default, for the channel's own.
    ///   - time: The clock of the closing handshake; the system's by default.
    ///   - account: The account that is charged for the memory of compression, and for bytes that are not inflated yet;
    ///     nil at a client.
    package init(
        role: WebSocketRole,
        acceptsText: Bool = false,
        deflate: DeflateAgreement? = nil,
        compression: WebSocketCompression? = nil,
        buffers: BufferPool = BufferPool(maximumBytes: 1 << 20),
        receiveBuffers: ReceiveBuffers? = nil,
        time: SocketTime = SocketTime(),
        account: (any LinkAccount)?
    ) {
        self.waiting = Hold(.memory(0), of: account)
        self.role = role
        self.buffers = buffers
        self.receiveBuffers = receiveBuffers
        self.time = time
        self.decoder = WebSocketDecoder(
            role: role,
            mode: .stream,
            acceptsText: acceptsText,
            deflate: deflate,
            buffers: buffers,
            inflatedBudget: WebSocketDecoder.inflatedPerTurn,
            account: account
        )
        self.encoder = WebSocketEncoder(role: role, deflate: deflate, account: account)
        if let compression { self.encoder.minimumCompressedLength = compression.minimumLength }
        self.closing = ClosingHandshake(role: role)
    }

    package func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
    }

    package func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
        self.timer?.cancel()
        self.aging?.cancel()
        self.work.timer?.cancel()
        self.decoder.dropInput()
        self.encoder.dropContext()
        self.waiting.change(to: 0)
        self.promise?.fail(ChannelError.ioOnClosedChannel)
        self.promise = nil
    }

    /// Sends bytes that the link had written before the carriage was added.
    package func send(_ bytes: [ByteBuffer]) {
        guard !bytes.isEmpty, let context = self.context else { return }
        for bytes in bytes { self.writer.append(bytes) }
        self.flush(context: context)
    }

    // MARK: Received bytes

    package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        self.receive(self.unwrapInboundIn(data), context)
    }

    private func receive(_ bytes: ByteBuffer, _ context: ChannelHandlerContext) {
        guard self.news == nil, self.violation == nil else { return }
        self.receiveBuffers?.put(bytes)
        self.decoder.append(bytes)
        // Any byte is a sign of life.
        if !self.deliver(context) { context.fireChannelRead(self.wrapInboundOut(ByteBuffer())) }
        if self.decoder.hasMoreWork { self.deferWork(context) }
    }

    /// Delivers the available bytes to the link, up to the slice that is inflated at once.
    ///
    /// - Returns: Whether there were any.
    private func deliver(_ context: ChannelHandlerContext) -> Bool {
        var hasDelivered = false
        do throws(WebSocketViolation) {
            while let input = try self.decoder.next() {
                switch input {
                case .bytes(let bytes):
                    hasDelivered = true
                    context.fireChannelRead(self.wrapInboundOut(bytes))
                case .ping(let payload):
                    self.controlFrames += 1
                    // It may wait until the peer reads again.
                    self.ping = OwnedBytes(payload)
                case .close(let close): self.news = .closed(close)
                case .pong: self.controlFrames += 1
                case .message: break
                }
            }
        } catch {
            self.news = .violated(error)
        }
        return hasDelivered
    }

    // MARK: Inflating in slices

    package func read(context: ChannelHandlerContext) {
        guard self.decoder.hasMoreWork else { return context.read() }
        self.work.isReadHeld = true
        self.deferWork(context)
    }

    /// Continues in another turn of the event loop, and while the link reads.
    private func deferWork(_ context: ChannelHandlerContext) {
        guard self.work.timer == nil else { return }
        self.work.timer = context.eventLoop.assumeIsolated().scheduleTask(in: Work.pause) {
            self.work.timer = nil
            if let context = self.context { self.resumeWork(context) }
        }
    }

    /// Whether the link accepts more: it has not suspended reading, and a server's client reads its answers. Otherwise
    /// a read follows, or the channel becomes writable.
    private func takesMore(_ context: ChannelHandlerContext) -> Bool {
        guard self.role == .client || context.channel.isWritable else { return false }
        let isReading = try? context.channel.syncOptions?.getOption(.autoRead)
        return isReading ?? true || self.work.isInputClosed
    }

    private func resumeWork(_ context: ChannelHandlerContext) {
        guard self.decoder.hasMoreWork, self.takesMore(context) else { return }
        self.decoder.resumeWork()
        _ = self.deliver(context)
        self.finishReading(context)
        guard let context = self.context else { return }
        if self.decoder.hasMoreWork { return self.deferWork(context) }
        if self.work.isInputClosed {
            self.work.isInputClosed = false
            self.closeInput(context)
        }
        if self.work.isReadHeld {
            self.work.isReadHeld = false
            context.read()
        }
    }

    /// Delivers all remaining bytes to the link, since the connection was lost. At a server the answers are no longer
    /// needed.
    private func deliverRest(_ context: ChannelHandlerContext) {
        guard self.role == .client, self.decoder.hasMoreWork else { return }
        while self.decoder.hasMoreWork {
            self.decoder.resumeWork()
            _ = self.deliver(context)
        }
        self.finishReading(context)
    }

    package func channelInactive(context: ChannelHandlerContext) {
        self.deliverRest(context)
        context.fireChannelInactive()
    }

    package func errorCaught(context: ChannelHandlerContext, error: any Error) {
        self.deliverRest(context)
        context.fireErrorCaught(error)
    }

    package func channelReadComplete(context: ChannelHandlerContext) {
        self.finishReading(context)
    }

    private func finishReading(_ context: ChannelHandlerContext) {
        // The link answers the delivered messages.
        context.fireChannelReadComplete()
        self.age(context)
        self.answerPing(context)
        guard self.context != nil, let news = self.news.take() else { return }
        switch news {
        case .closed(let close):
            self.perform(self.closing.receive(close), context)
            guard !self.closing.hasSent else { return }
            if self.role == .server {
                context.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
            } else {
                context.fireErrorCaught(LinkEndError(close.end))
            }
        case .violated(let violation):
            self.violation = violation
            let error = LinkError("\(violation)", underlying: violation)
            context.fireErrorCaught(LinkEndError(LinkEnd(.protocolViolation(error))))
        }
    }

    /// Answers the last ping (RFC 6455, section 5.5.3), unless the peer does not read.
    private func answerPing(_ context: ChannelHandlerContext) {
        guard context.channel.isWritable, !self.closing.hasSent, let payload = self.ping.take() else { return }
        self.emit(context)
        self.out.prepare()
        self.encoder.encodePong(payload.buffer, into: &self.out.gathered)
        self.writeOut(context)
        context.flush()
    }

    package func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard case .inputClosed? = event as? ChannelEvent else { return context.fireUserInboundEventTriggered(event) }
        guard self.decoder.hasMoreWork else { return self.closeInput(context) }
        self.work.isInputClosed = true
        self.deferWork(context)
    }

    private func closeInput(_ context: ChannelHandlerContext) {
        self.perform(self.closing.endInput(), context)
        context.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
    }

    // MARK: Sent bytes

    package func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        guard !self.closing.hasSent else {
            promise?.fail(ChannelError.outputClosed)
            return
        }
        if let promise { self.promise.setOrCascade(to: promise) }
        self.writer.append(self.unwrapOutboundIn(data))
        if self.writer.count >= Self.gatherLimit { self.emit(context) }
    }

    package func flush(context: ChannelHandlerContext) {
        self.emit(context)
        context.flush()
        self.age(context)
    }

    package func channelWritabilityChanged(context: ChannelHandlerContext) {
        self.answerPing(context)
        if self.decoder.hasMoreWork { self.deferWork(context) }
        context.fireChannelWritabilityChanged()
    }

    /// Passes the written bytes on, in messages.
    private func emit(_ context: ChannelHandlerContext) {
        if self.writer.count > 0 {
            if self.out.count == 0 {
                self.out = SendBytes()
                self.out.gathered = self.buffers.take(capacity: self.writer.copiedLength(self.encoder))
            }
            self.writer.write(&self.encoder, into: &self.out)
            self.writeOut(context)
        }
        // No bytes were written: the promise waits for earlier writes.
        if let promise = self.promise.take() { context.write(self.wrapOutboundOut(ByteBuffer()), promise: promise) }
    }

    /// Writes `out`. The last part has the promise.
    private func writeOut(_ context: ChannelHandlerContext) {
        while let bytes = self.out.popFirst() { context.write(self.wrapOutboundOut(bytes), promise: nil) }
        if let bytes = self.out.takeGathered() {
            // Then only the channel and the pool refer to it, until it has been sent.
            self.out = SendBytes()
            self.buffers.put(bytes)
            context.write(self.wrapOutboundOut(bytes), promise: self.promise.take())
        }
    }

    /// Frees unused contexts after a while. There is no timer while there are none.
    private func age(_ context: ChannelHandlerContext) {
        // Other bytes are passed on at once, but for a part of a header or of a control frame.
        self.waiting.change(to: self.decoder.hasMoreWork ? self.decoder.heldBytes : 0)
        guard self.aging == nil, self.decoder.holdsContext || self.encoder.holdsContext else { return }
        self.aging = self.time.schedule(in: Self.idleTime, on: context.eventLoop) {
            self.aging = nil
            self.decoder.releaseContextUnlessUsed()
            self.encoder.releaseContextUnlessUsed()
            if let context = self.context { self.age(context) }
        }
    }

    // MARK: The end

    package func triggerUserOutboundEvent(
        context: ChannelHandlerContext,
        event: Any,
        promise: EventLoopPromise<Void>?
    ) {
        guard let reason = event as? CloseReason else {
            return context.triggerUserOutboundEvent(event, promise: promise)
        }
        self.reason = reason
        promise?.succeed()
    }

    package func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        self.emit(context)
        switch mode {
        case .input:
            context.close(mode: .input, promise: promise)
        case .output:
            self.close(context, promise: promise)
        case .all:
            // A link that ends because the peer has closed, or has broken the rules, sends a close frame. Otherwise the
            // peer cannot receive one, or there is no time left.
            let isHeard =
                self.closing.received != nil || self.violation != nil || (self.reason.map { $0 != .done } ?? false)
            guard !self.closing.hasSent, context.channel.isActive else {
                return context.close(mode: .all, promise: promise)
            }
            guard isHeard else {
                // A server that has no more time for a client still sends the reason.
                if self.role == .server, case .send(let close)? = self.closing.close(self.ownClose).first {
                    self.send(close, context)
                }
                return context.close(mode: .all, promise: promise)
            }
            if let promise { context.channel.closeFuture.cascade(to: promise) }
            self.close(context, promise: nil)
        }
    }

    /// Sends our close frame, and performs the following steps.
    ///
    /// - Parameter promise: Completes when it was sent.
    private func close(_ context: ChannelHandlerContext, promise: EventLoopPromise<Void>?) {
        if let promise { self.promise.setOrCascade(to: promise) }
        if let violation = self.violation {
            self.perform(self.closing.fail(WebSocketClose(code: violation.code, reason: "\(violation)")), context)
        } else {
            self.perform(self.closing.close(self.ownClose), context)
        }
        self.promise.take()?.succeed()
    }

    private var ownClose: WebSocketClose {
        switch self.reason {
        case .protocolViolation: WebSocketClose(code: 1_002)
        case .tooLarge: WebSocketClose(code: 1_009)
        case .done, nil: WebSocketClose(code: self.role == .server ? 1_001 : 1_000)
        }
    }

    private func send(_ close: WebSocketClose, _ context: ChannelHandlerContext) {
        self.out.prepare()
        self.encoder.encodeClose(close, into: &self.out.gathered)
        self.writeOut(context)
        context.flush()
    }

    private func perform(_ actions: [ClosingHandshake.Action], _ context: ChannelHandlerContext) {
        for action in actions {
            switch action {
            case .send(let close):
                self.send(close, context)
            case .closeOutput:
                context.close(mode: .output, promise: nil)
            case .closeChannel:
                // After everything that remains to be sent.
                let flushed = context.eventLoop.makePromise(of: Void.self)
                context.writeAndFlush(self.wrapOutboundOut(ByteBuffer()), promise: flushed)
                flushed.futureResult.assumeIsolated().whenComplete { _ in self.context?.close(promise: nil) }
                self.awaitPeer(context)
            case .awaitPeer:
                self.awaitPeer(context)
            }
        }
    }

    private func awaitPeer(_ context: ChannelHandlerContext) {
        guard self.timer == nil else { return }
        self.timer = self.time.schedule(in: .seconds(ClosingHandshake.patience), on: context.eventLoop) {
            self.context?.close(promise: nil)
        }
    }
}

extension Optional where Wrapped == EventLoopPromise<Void> {
    /// Completes `promise` with the current one, or stores it if there is none.
    fileprivate mutating func setOrCascade(to promise: EventLoopPromise<Void>) {
        if let present = self { present.futureResult.cascade(to: promise) } else { self = promise }
    }
}
