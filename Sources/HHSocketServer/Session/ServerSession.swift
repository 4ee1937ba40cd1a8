import HHSocket
import NIOCore
import NIOSSL

/// One client's connection: the thin shell that does what ``ServerSessionMachine`` decides.
///
/// Confined to its channel's event loop, which is why it needs no lock and is not `Sendable`.
final class ServerSession: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    struct Limits: Sendable {
        var format: WireFormat
        /// The custom header fields of frames that answer no request, and of those fields that a request does not have.
        var customFields: [UInt8]?
        var maximumPayloadLength: Int
        var maximumCorruptRun: Int
        var maximumInFlight: Int
        var maximumPendingWriteBytes: Int
        var heartbeat: HeartbeatPolicy?
    }

    /// Larger bodies are written as they are, between their header and trailer; smaller ones are copied together, which
    /// is cheaper than the vectors.
    static let largestCopiedBody = 16 << 10
    /// Answers made from one read are held until its end, but no more bytes than this: then they leave, and if the client
    /// does not take them, the rest of what it sent has to wait.
    static let largestTurn = 1 << 20
    /// A buffer larger than this is not kept for the next turn.
    static let largestKeptBuffer = 256 << 10
    /// How long a client may go on sending after we have said our last word. Closing at once would reset the connection,
    /// and with it answers that the client has not read yet.
    static let lingerTime = TimeAmount.seconds(1)
    /// How long a client whose bytes made no sense may take to read our last word.
    static let protocolErrorTime = TimeAmount.seconds(5)

    private enum Phase {
        case open
        /// The last answers are leaving; what comes is discarded.
        case finishing
        case closed
    }

    private let loop: ServerLoop
    private let router: Router
    private let limits: Limits
    private let format: WireFormat
    private let encoder: FrameEncoder
    /// Without a status no answer but success can be given.
    private let canAnswerErrors: Bool

    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var phase = Phase.open
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var machine: ServerSessionMachine<Task<Void, Never>>
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var decoder: FrameDecoder
    private var context: ChannelHandlerContext?
    private var serverContext: ServerContext?
    private let completions: CompletionQueue

    // The last route that was looked up: most clients call the same thing many times in a row.
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var cachedType: UInt32 = 0
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var cachedRoute: Router.Route?

    /// Answers of this turn.
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var outgoing = ByteBuffer()
    /// Something was given to the channel and not flushed yet.
    private var hasUnflushedWrites = false
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var bytesThisTurn = 0
    private var isReading = false
    private var flushIsScheduled = false
    /// The client does not take our answers: what it has sent meanwhile stays in the decoder.
    private var isPaused = false
    private var readIsHeld = false
    /// Whether the channel takes more, as far as it has said.
    private var isWritable = true

    private var heartbeat: HeartbeatMonitor?
    private var heartbeatTimer: Scheduled<Void>?
    private var closeTimer: Scheduled<Void>?

    init(loop: ServerLoop, router: Router, limits: Limits) {
        self.loop = loop
        self.router = router
        self.limits = limits
        let format = limits.format
        self.format = format
        self.encoder = FrameEncoder(direction: .response, format: format, customFields: limits.customFields)
        self.canAnswerErrors = format.hasStatus
        self.machine = ServerSessionMachine(maximumInFlight: limits.maximumInFlight, format: format)
        // Slices of the read buffer: a synchronous handler's request costs no allocation. Asynchronous ones get a copy
        // of a small body instead, see `start`.
        self.decoder = FrameDecoder(
            direction: .request,
            format: format,
            maximumPayloadLength: limits.maximumPayloadLength,
            copyLimit: 0,
            maximumCorruptRun: limits.maximumCorruptRun
        )
        self.completions = CompletionQueue(eventLoop: loop.eventLoop)
    }

    // MARK: The connection's life

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        if context.channel.isActive { self.begin(context) }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.end()
        self.context = nil
    }

    func channelActive(context: ChannelHandlerContext) {
        self.begin(context)
        context.fireChannelActive()
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.end()
        context.fireChannelInactive()
    }

    private func begin(_ context: ChannelHandlerContext) {
        guard self.serverContext == nil, self.phase == .open else { return }
        self.serverContext = ServerContext(
            connection: .init(
                id: self.loop.nextConnectionID(),
                remoteAddress: context.remoteAddress,
                eventLoop: context.eventLoop
            )
        )
        let session = NIOLoopBound(self, eventLoop: context.eventLoop)
        self.completions.open { session.value.takeCompletions() }
        self.machine.statistics.connectionsAccepted += 1
        self.publishStatistics()
        self.loop.add(self)
        if let policy = self.limits.heartbeat, self.format.serverPing != nil {
            self.heartbeat = HeartbeatMonitor(
                policy,
                interval: policy.interval.interval(for: HeartbeatHistory()),
                canPing: true,
                now: .now()
            )
            self.scheduleHeartbeat(on: context.eventLoop)
        }
        if self.loop.isDraining { self.drain() }
    }

    private func end() {
        guard self.phase != .closed else { return }
        self.phase = .closed
        self.stopHandlers()
        self.completions.close()
        self.heartbeatTimer?.cancel()
        self.heartbeatTimer = nil
        self.closeTimer?.cancel()
        self.closeTimer = nil
        self.outgoing = ByteBuffer()
        self.publishStatistics()
        self.loop.remove(self)
    }

    private func stopHandlers() {
        for task in self.machine.close() { task.cancel() }
        self.completions.close()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // A client that has closed its side without TLS's last word; it may still read its answers.
        if case NIOSSLError.uncleanShutdown = error { return }
        context.close(promise: nil)
    }

    /// Refuses new requests, finishes those in flight, then closes.
    func drain() {
        self.machine.drain()
        self.finishIfDone()
    }

    /// Closes at once.
    func kill() {
        self.context?.close(promise: nil)
    }

    // MARK: Reading

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard self.phase == .open else { return }
        self.isReading = true
        if self.heartbeat != nil { self.noteBytesReceived(context) }
        self.decoder.append(self.unwrapInboundIn(data))
        if !self.isPaused { self.decodeFrames(context) }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        self.isReading = false
        self.publishStatistics()
        self.flush()
        self.finishIfDone()
        context.fireChannelReadComplete()
    }

    private func decodeFrames(_ context: ChannelHandlerContext) {
        do throws(FrameError) {
            var frame = Frame(type: 0, serial: 0)
            while true {
                self.answerAtOnce()
                switch try self.decoder.next(into: &frame) {
                case .nothing: return
                case .sound: self.receive(frame, isCorrupt: false)
                case .corrupt: self.receive(frame, isCorrupt: true)
                }
                guard self.phase == .open else { return }
                if self.bytesThisTurn >= Self.largestTurn {
                    self.flush()
                    if !self.isWritable {
                        self.isPaused = true
                        return
                    }
                }
            }
        } catch {
            self.machine.lostFraming()
            if error.code == .payloadTooLarge, let type = error.type, let serial = error.serial {
                self.answer(Frame(type: type, serial: serial, status: .illegalLength))
            }
            self.finishAfterProtocolError()
        }
    }

    /// Answers requests as long as they are what most are: in the standard format, whole and sound, and of a type that has
    /// just been looked up and is answered at once. What else comes is left where it is.
    private func answerAtOnce() {
        guard case .synchronous(let handler) = self.cachedRoute, self.encoder.isStandard,
            let serverContext = self.serverContext
        else { return }
        while self.phase == .open, self.bytesThisTurn < Self.largestTurn, let header = self.decoder.soundHeader(),
            header.type == self.cachedType, self.machine.answersAtOnce(serial: header.serial)
        {
            let request = ServerRequest(
                type: header.type,
                serial: header.serial,
                body: self.decoder.takePayload(of: header)
            )
            do {
                self.answer(header, .ok, try handler(request, serverContext))
            } catch {
                let (status, body) = Self.verdict(of: error)
                self.answer(header, status, body)
            }
        }
    }

    private func answer(_ header: FrameHeader, _ status: Status, _ body: ByteBuffer) {
        guard body.readableBytes <= Self.largestCopiedBody else {
            return self.answer(Frame(type: header.type, serial: header.serial, status: status, payload: body))
        }
        self.bytesThisTurn += self.encoder.encodedLength(payloadLength: body.readableBytes)
        self.encoder.encode(type: header.type, serial: header.serial, status: status, body, into: &self.outgoing)
    }

    private func receive(_ frame: Frame, isCorrupt: Bool) {
        let route = self.format.isControlType(frame.type) ? nil : self.route(for: frame.type)
        let handling: ServerSessionMachine<Task<Void, Never>>.Handling =
            switch route {
            case .synchronous: .synchronous
            case .asynchronous: .asynchronous
            case nil: .none
            }
        switch self.machine.received(
            type: frame.type,
            serial: frame.serial,
            isCorrupt: isCorrupt,
            handling: handling
        ) {
        case .answer(let status):
            self.answer(self.emptyAnswer(to: frame, status))
        case .runSynchronously:
            if case .synchronous(let handler) = route { self.run(handler, frame) }
        case .start(let run):
            if case .asynchronous(let handler) = route { self.start(handler, frame, run: run) }
        case .stop(let task):
            task.cancel()
        case .ignore:
            break
        }
    }

    private func route(for type: UInt32) -> Router.Route? {
        if type == self.cachedType { return self.cachedRoute }
        let route = self.router.route(for: type)
        self.cachedType = type
        self.cachedRoute = route
        return route
    }

    // MARK: Handlers

    private func run(_ handler: Router.SynchronousHandler, _ frame: Frame) {
        guard let serverContext = self.serverContext else { return }
        let request = self.request(frame, body: frame.payload)
        var answer = self.emptyAnswer(to: frame)
        do {
            answer.payload = try handler(request, serverContext)
        } catch {
            (answer.status, answer.payload) = Self.verdict(of: error)
        }
        self.answer(answer)
    }

    private func request(_ frame: Frame, body: ByteBuffer) -> ServerRequest {
        ServerRequest(
            type: frame.type,
            serial: frame.serial,
            body: body,
            header: self.format.header(of: frame, in: .request)
        )
    }

    private func emptyAnswer(to frame: Frame, _ status: Status = .ok) -> Frame {
        Frame(
            type: frame.type,
            serial: frame.serial,
            status: status,
            customFields: self.format.responseFields(answering: frame.customFields, over: self.limits.customFields)
        )
    }

    private func start(_ handler: @escaping Router.Handler, _ frame: Frame, run: UInt64) {
        guard let serverContext = self.serverContext else { return }
        let request = self.request(frame, body: Self.detached(frame.payload))
        let answer = self.emptyAnswer(to: frame)
        let completions = self.completions
        let task = Task {
            completions.append(await ServerSession.completion(of: handler, request, serverContext, answer, run: run))
        }
        self.machine.started(task, serial: frame.serial, run: run)
    }

    private static func completion(
        of handler: Router.Handler,
        _ request: ServerRequest,
        _ serverContext: ServerContext,
        _ emptyAnswer: Frame,
        run: UInt64
    ) async -> CompletionQueue.Completion {
        var answer = emptyAnswer
        do {
            answer.payload = try await handler(request, serverContext)
        } catch {
            (answer.status, answer.payload) = Self.verdict(of: error)
        }
        return .init(answer: answer, run: run)
    }

    /// A small body of its own, so that it does not keep a whole read's buffer for as long as its handler runs.
    private static func detached(_ body: ByteBuffer) -> ByteBuffer {
        guard body.readableBytes <= FrameDecoder.defaultCopyLimit else { return body }
        return body.withUnsafeReadableBytes { $0.isEmpty ? ByteBuffer() : ByteBuffer(bytes: $0) }
    }

    private static func verdict(of error: any Error) -> (Status, ByteBuffer) {
        guard let error = error as? StatusError else { return (.unknown, ByteBuffer()) }
        return (error.status, error.body)
    }

    private func takeCompletions() {
        guard self.phase == .open else { return }
        for completion in self.completions.takeAll()
        where self.machine.finished(serial: completion.answer.serial, run: completion.run) == .send {
            self.answer(completion.answer)
        }
        self.scheduleFlush()
    }

    // MARK: Writing

    private func answer(_ frame: Frame) {
        guard frame.status == .ok || self.canAnswerErrors else {
            // Sent without its status it would pass for success. The client's timeout tells it that something is wrong.
            self.machine.statistics.errorsNotSent += 1
            return
        }
        self.send(frame)
    }

    private func send(_ frame: Frame) {
        let length = frame.payload.readableBytes
        self.bytesThisTurn += self.encoder.encodedLength(payloadLength: length)
        if length <= Self.largestCopiedBody {
            self.encoder.encode(frame, into: &self.outgoing)
        } else if let context = self.context {
            self.encoder.encodeHeader(of: frame, into: &self.outgoing)
            self.writeOutgoing(context)
            context.write(self.wrapOutboundOut(frame.payload), promise: nil)
            self.outgoing = context.channel.allocator.buffer(capacity: 256)
            self.encoder.encodeTrailer(of: frame, into: &self.outgoing)
        }
    }

    /// Gives the channel a frame that is shared with other connections.
    ///
    /// - Returns: Whether it was taken, and not dropped because the client reads too slowly.
    func push(_ frame: ByteBuffer) -> Bool {
        guard self.phase == .open, let context = self.context else { return false }
        let waiting = self.pendingWriteBytes(context)
        guard waiting == 0 || waiting + frame.readableBytes <= self.limits.maximumPendingWriteBytes else {
            self.machine.statistics.pushesDropped += 1
            self.publishStatistics()
            return false
        }
        self.writeOutgoing(context)
        context.write(self.wrapOutboundOut(frame), promise: nil)
        self.hasUnflushedWrites = true
        self.machine.statistics.pushesSent += 1
        self.publishStatistics()
        if !self.isReading { self.scheduleFlush() }
        return true
    }

    /// What the client has not taken yet, in bytes.
    private func pendingWriteBytes(_ context: ChannelHandlerContext) -> Int {
        let buffered = try? context.channel.syncOptions?.getOption(.bufferedWritableBytes)
        return self.outgoing.readableBytes + (buffered ?? 0)
    }

    private func writeOutgoing(_ context: ChannelHandlerContext, promise: EventLoopPromise<Void>? = nil) {
        guard self.outgoing.readableBytes > 0 || promise != nil else { return }
        context.write(self.wrapOutboundOut(self.outgoing), promise: promise)
        self.outgoing = ByteBuffer()
        self.hasUnflushedWrites = true
    }

    /// Sends everything there is in one system call.
    private func flush() {
        guard self.phase != .closed, let context = self.context else { return }
        self.bytesThisTurn = 0
        guard self.outgoing.readableBytes > 0 || self.hasUnflushedWrites else { return }
        var written = self.outgoing
        self.writeOutgoing(context)
        self.hasUnflushedWrites = false
        self.heartbeat?.bytesSent(now: .now())
        context.flush()
        // Use the memory again, unless it was large for what it held.
        if self.outgoing.capacity == 0, written.capacity <= Self.largestKeptBuffer,
            written.capacity <= 4096 || written.readableBytes >= written.capacity / 8
        {
            written.clear()
            self.outgoing = written
        }
    }

    /// Flushes after what else is ready in this turn of the event loop.
    private func scheduleFlush() {
        guard !self.flushIsScheduled, let context = self.context else { return }
        self.flushIsScheduled = true
        context.eventLoop.assumeIsolated().execute {
            self.flushIsScheduled = false
            self.publishStatistics()
            self.flush()
            self.finishIfDone()
        }
    }

    // MARK: Backpressure

    func read(context: ChannelHandlerContext) {
        // What is discarded may always be read, or the client's end would never be seen.
        if self.phase != .open || (self.isWritable && !self.isPaused) {
            context.read()
        } else {
            self.readIsHeld = true
        }
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        self.isWritable = context.channel.isWritable
        if self.isWritable {
            if self.isPaused, self.phase == .open {
                self.isPaused = false
                self.decodeFrames(context)
                self.scheduleFlush()
            }
            self.releaseRead(context)
        }
        context.fireChannelWritabilityChanged()
    }

    private func releaseRead(_ context: ChannelHandlerContext) {
        guard self.readIsHeld, !self.isPaused || self.phase != .open else { return }
        self.readIsHeld = false
        context.read()
    }

    // MARK: Closing

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .inputClosed? = event as? ChannelEvent {
            self.machine.closedInput()
            // Reads of the same turn may still have answers in the buffer.
            if self.phase == .open { self.scheduleFlush() }
        }
        context.fireUserInboundEventTriggered(event)
    }

    private func finishIfDone() {
        guard self.phase == .open, !self.isPaused, self.machine.isFinished else { return }
        self.finish()
    }

    private func finishAfterProtocolError() {
        guard self.phase == .open, let context = self.context else { return }
        self.stopHandlers()
        self.publishStatistics()
        self.scheduleClose(on: context.eventLoop, in: Self.protocolErrorTime)
        self.finish()
    }

    /// Lets the last answers leave, then closes: our direction first, so that nothing is lost on its way.
    private func finish() {
        guard self.phase == .open, let context = self.context else { return }
        self.phase = .finishing
        let flushed = context.eventLoop.makePromise(of: Void.self)
        let session = NIOLoopBound(self, eventLoop: context.eventLoop)
        if self.machine.inputIsClosed {
            self.writeOutgoing(context, promise: flushed)
            context.flush()
        } else {
            self.flush()
            context.close(mode: .output, promise: flushed)
        }
        flushed.futureResult.whenComplete { _ in session.value.lastWordLeft() }
        self.releaseRead(context)
    }

    private func lastWordLeft() {
        guard self.phase != .closed, let context = self.context else { return }
        if self.machine.inputIsClosed {
            context.close(promise: nil)
        } else {
            self.scheduleClose(on: context.eventLoop, in: Self.lingerTime)
        }
    }

    private func scheduleClose(on eventLoop: any EventLoop, in time: TimeAmount) {
        self.closeTimer?.cancel()
        self.closeTimer = eventLoop.assumeIsolated().scheduleTask(in: time) { self.kill() }
    }

    // MARK: Heartbeat

    private func noteBytesReceived(_ context: ChannelHandlerContext) {
        let awaitedReply = self.heartbeat?.awaitsReply == true
        self.heartbeat?.bytesReceived(now: .now())
        // The timer waits for the reply's timeout; the next ping may be due before.
        if awaitedReply { self.scheduleHeartbeat(on: context.eventLoop) }
    }

    private func scheduleHeartbeat(on eventLoop: any EventLoop) {
        guard let deadline = self.heartbeat?.nextDeadline else { return }
        self.heartbeatTimer?.cancel()
        self.heartbeatTimer = eventLoop.assumeIsolated().scheduleTask(deadline: deadline) { self.heartbeatIsDue() }
    }

    private func heartbeatIsDue() {
        guard self.phase == .open, let context = self.context else { return }
        let now = NIODeadline.now()
        if self.isPaused || self.readIsHeld || self.pendingWriteBytes(context) > 0 {
            self.heartbeat?.writeIsBlocked(now: now)
        }
        switch self.heartbeat?.tick(now: now) {
        case .ping?:
            if var ping = self.format.serverPing {
                if let payload = self.limits.heartbeat?.payload { ping.payload = payload }
                self.machine.pinged()
                self.send(ping)
            }
            self.publishStatistics()
            self.flush()
        case .peerIsDead?:
            self.machine.statistics.deadPeers += 1
            self.publishStatistics()
            self.kill()
            return
        case nil:
            break
        }
        self.scheduleHeartbeat(on: context.eventLoop)
    }

    private func publishStatistics() {
        self.loop.add(self.machine.statistics)
        self.machine.statistics = ServerStatistics()
    }
}
