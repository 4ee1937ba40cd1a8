import HHSocket
import NIOCore
import NIOSSL

/// One client's connection: the thin shell that does what ``SessionMachine`` decides.
///
/// Confined to its channel's event loop, which is why it needs no lock and is not `Sendable`.
///
/// What comes is taken in `+Reading`, handed to handlers in `+Handlers`, what leaves is sent in `+Writing`, and how it ends is in
/// `+Closing`.
final class SessionHandler: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// Larger bodies are written as they are, between their header and trailer; smaller ones are copied together, which
    /// is cheaper than the vectors.
    static let largestCopiedBody = 16 << 10
    /// Answers made from one read are held until its end, but no more bytes than this: then they leave, and if the client
    /// does not take them, the rest of what it sent has to wait.
    static let largestTurn = 1 << 20
    /// A buffer larger than this is not kept for the next turn.
    static let largestKeptBuffer = 256 << 10
    /// What a place in line takes, in bytes: that of an answer with its frame, but without its payload.
    static let placeCost = 128
    /// A larger answer that is made on the event loop is not compressed: the loop's other connections would wait for it. It is
    /// about a millisecond's work.
    static let largestBodyCompressedAtOnce = 64 << 10
    /// How long a client may go on sending after we have said our last word. Closing at once would reset the connection,
    /// and with it answers that the client has not read yet.
    static let lingerTime = TimeAmount.seconds(1)
    /// How long a client whose bytes made no sense may take to read our last word.
    static let protocolErrorTime = TimeAmount.seconds(5)

    enum Phase {
        case open
        /// The last answers are leaving; what comes is discarded.
        case finishing
        case closed
    }

    let loop: ServerLoop
    let core: ServerCore
    let listener: ListenerSettings
    let format: WireFormat
    let encoder: FrameEncoder
    /// Why this client is told to go away, and nothing else; nil: it is served.
    private let refusal: GoAwayNotice?
    /// Without a status no answer but success can be given.
    let canAnswerErrors: Bool
    /// Whether nothing but the machine has a say in whether a synchronous handler runs.
    var isPlain: Bool
    /// A larger answer is not copied, or may be compressed.
    var largestPlainAnswer = SessionHandler.largestCopiedBody
    /// What handlers are given that may say something beside their answers, where the request brings nothing.
    var plainExtras: ServerContext.Extras?

    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    var phase = Phase.open
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    var machine: SessionMachine<Task<Void, Never>>
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    var decoder: FrameDecoder
    var context: ChannelHandlerContext?
    var serverContext: ServerContext?
    /// What hello has agreed on.
    var agreement: Agreement?
    var hasGreeted = false
    /// Finds out who the client is.
    var greeting: Task<Void, Never>?
    let completions: CompletionQueue
    /// Nil where answers leave as they come.
    var order: AnswerOrder<Frame>?
    /// The payloads of the answers that it holds, in bytes.
    var heldPayloadBytes = 0
    var bucket: TokenBucket?
    /// What ends requests at their deadlines, by run.
    var deadlineTimers: [UInt64: ServerLoop.TimerID] = [:]

    // The last route that was looked up: most clients call the same thing many times in a row.
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    var cachedType: UInt32 = 0
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    var cachedRoute: Router.Route?

    /// Answers of this turn.
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    var outgoing = ByteBuffer()
    /// Something was given to the channel and not flushed yet.
    var hasUnflushedWrites = false
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    var bytesThisTurn = 0
    /// All that was ever given to the channel.
    var bytesWritten = 0
    var pushes: PushQueue
    var isReading = false
    var flushIsScheduled = false
    /// The client does not take our answers: what it has sent meanwhile stays in the decoder.
    var isPaused = false
    var readIsHeld = false
    /// Whether the channel takes more, as far as it has said.
    var isWritable = true

    var watch: SessionWatch
    /// What came in this turn.
    var bytesRead = 0
    var hasFrames = false
    /// Whether whole frames have come, and nothing else, since the last look.
    var hasReadSinceLook = false
    /// What is held for this connection, here and by its handlers.
    let load: ConnectionLoad
    /// Of that, what is held here, as far as it has been told.
    var accountedBytes = 0

    var heartbeat: HeartbeatMonitor?
    var heartbeatTimer: ServerLoop.TimerID?
    var closeTimer: ServerLoop.TimerID?

    /// - Parameter refusal: What the client is told, if it is not served.
    init(loop: ServerLoop, core: ServerCore, listener: ListenerSettings, refusal: GoAwayNotice? = nil) {
        self.loop = loop
        self.core = core
        self.load = ConnectionLoad(core.load, maximumBytes: core.limits.maximumBufferedBytesPerConnection)
        self.listener = listener
        self.refusal = refusal
        let format = listener.format
        let limits = core.limits
        self.format = format
        self.encoder = listener.encoder
        self.canAnswerErrors = format.hasStatus
        self.machine = SessionMachine(
            maximumInFlight: limits.maximumInFlightPerConnection,
            format: format,
            numbersAll: core.answersInOrder
        )
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
        self.pushes = PushQueue(
            maximumCount: limits.maximumWaitingPushes,
            maximumBytes: limits.maximumWaitingPushBytes
        )
        let now = NIODeadline.now()
        self.watch = SessionWatch(now: now)
        self.order = core.answersInOrder ? AnswerOrder() : nil
        self.bucket = limits.requestRate.map { TokenBucket($0, now: now) }
        self.isPlain = !core.hello.isRequired
        // Applications may have that type, in some formats.
        self.cachedRoute = core.routes[self.cachedType]
        self.isPlain = self.isPlain && self.answersAsTheyCome
    }

    /// Whether requests are neither counted nor kept in order, in a format whose frames are made in one go.
    var answersAsTheyCome: Bool { self.order == nil && self.bucket == nil && self.encoder.isStandard }

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
        // Accepted while the server shut down, by a loop that had no other connection.
        guard !self.loop.isOver else { return context.close(promise: nil) }
        if let refusal = self.refusal {
            self.loop.addRefused(self)
            return self.dismiss(refusal)
        }
        let shown = ServerSession(
            id: self.core.nextConnectionID(),
            remoteAddress: context.remoteAddress,
            listener: self.listener.endpoint,
            peerCertificate: self.peerCertificate(context),
            eventLoop: context.eventLoop,
            logger: self.core.logger,
            registry: self.core.registry,
            handler: self
        )
        self.serverContext = ServerContext(session: shown)
        let session = NIOLoopBound(self, eventLoop: context.eventLoop)
        self.completions.open { session.value.takeCompletions() }
        self.machine.statistics.connectionsAccepted += 1
        self.publishStatistics()
        self.loop.add(self)
        if let policy = self.core.heartbeat, self.format.serverPing != nil {
            self.heartbeat = HeartbeatMonitor(
                policy,
                interval: policy.interval.interval(for: HeartbeatHistory()),
                canPing: true,
                now: .now()
            )
            self.scheduleHeartbeat()
        }
        self.core.logger.debug(
            "a client has connected",
            metadata: ["connection": "\(shown.id)", "remote": "\(self.remoteName)"]
        )
        if let policy = self.loop.draining { self.drain(policy) }
    }

    private func peerCertificate(_ context: ChannelHandlerContext) -> [UInt8]? {
        guard let handler = try? context.pipeline.syncOperations.handler(type: NIOSSLServerHandler.self),
            let certificate = handler.peerCertificate
        else { return nil }
        return try? certificate.toDERBytes()
    }

    var remoteName: String { self.serverContext?.session.remoteAddress.map { "\($0)" } ?? "unknown" }

    private func end() {
        guard self.phase != .closed else { return }
        self.phase = .closed
        self.stopHandlers()
        self.replace(&self.heartbeatTimer, with: nil)
        self.replace(&self.closeTimer, with: nil)
        self.outgoing = ByteBuffer()
        self.pushes.removeAll()
        self.order = nil
        self.load.held(-self.accountedBytes)
        self.accountedBytes = 0
        self.publishStatistics()
        self.loop.remove(self)
        if let session = self.serverContext?.session {
            self.core.logger.debug("a connection has ended", metadata: ["connection": "\(session.id)"])
            session.end()
        }
        // The session knows the handler, and the handler the session.
        self.serverContext = nil
    }

    func stopHandlers() {
        for task in self.machine.close() { task.cancel() }
        self.greeting?.cancel()
        for timer in self.deadlineTimers.values { self.loop.removeTimer(timer) }
        self.deadlineTimers = [:]
        self.completions.close()
    }

    /// Takes a timer back, and remembers another.
    func replace(_ timer: inout ServerLoop.TimerID?, with next: ServerLoop.TimerID?) {
        if let timer { self.loop.removeTimer(timer) }
        timer = next
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // A client that has closed its side without TLS's last word; it may still read its answers.
        if case NIOSSLError.uncleanShutdown = error { return }
        context.close(promise: nil)
    }

    func publishStatistics() {
        self.loop.add(self.machine.statistics)
        self.machine.statistics = ServerStatistics()
    }
}
