// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The connection of one client: it applies the decisions of ``SessionMachine`` to the frames that its link receives,
/// and is notified of changes of the link.
///
/// `+Reading` receives requests, `FastPath.swift` answers synchronous ones, `+Handlers` runs handlers for the others,
/// `+Writing` sends answers, and `+Closing` ends the connection.
final class ServerConnection: LinkReceiver, LinkHost, @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable, except for the link, which is accessed only on the event loop,
    // like the variables.
    typealias Language = FrameLanguage

    /// Larger bodies are written without copying, between their header and trailer; smaller ones are copied together,
    /// which is cheaper than vectored writes.
    static let largestCopiedBody = 16 << 10
    /// The cost of a place in the order of answers, in bytes: that of an answer with its frame, but without its
    /// payload.
    static let placeCost = 128
    /// A larger answer that is made on the event loop is not compressed: the loop's other connections would wait for
    /// it. It is about a millisecond's work.
    static let largestBodyCompressedOnLoop = 64 << 10
    /// The time that a client may go on sending after the server has closed its direction. Closing immediately would
    /// reset the connection, and lose answers that the client has not read yet.
    static let lingerTime = TimeAmount.seconds(1)
    /// The time that a client whose bytes could not be decoded may take to read the last answer.
    static let protocolErrorTime = TimeAmount.seconds(5)

    enum Phase {
        case open
        /// The last answers are being sent; input is discarded.
        case finishing
        case closed
    }

    /// The results of hello.
    struct Greeting {
        var agreement: Agreement?
        var hasGreeted = false
        /// Whether the transport compresses the frames: hello does not agree on compression then.
        var isCompressed = false
        /// Whether the client still has to identify itself, by hello or by its identity. See `+Standing`.
        var isStranger: Bool
        /// Authenticates the client, or waits for its turn to.
        var authentication: Authentication?
    }

    /// The last route that was looked up: most clients send the same type many times in a row.
    struct CachedRoute {
        let type: UInt32
        let route: Router.Route?
        /// The handler for the fast path, and its direct form.
        let openHandlers: (handler: Router.SynchronousHandler, direct: Router.DirectHandler?)?

        init(type: UInt32, route: Router.Route?) {
            self.type = type
            self.route = route
            self.openHandlers = route?.openHandlers
        }
    }

    /// Answers that wait for those to earlier requests.
    struct Line {
        /// The order of answers; nil if answers are sent as soon as they are ready.
        var order: AnswerOrder<Frame>?
        /// The memory of the payloads of the answers that it holds, in bytes.
        var payloadBytes = 0

        /// The cost of the waiting answers, in bytes. Places without a payload count too, including those of cancelled
        /// requests: otherwise they would be unbounded.
        var bytes: Int { self.payloadBytes + (self.order?.count ?? 0) * ServerConnection.placeCost }
    }

    /// The input of ``SessionWatch``.
    struct Watching {
        var watch: SessionWatch
        /// The number of received bytes that have been reported.
        var bytesRead = 0
        /// Whether whole frames have come since then.
        var hasFrames = false
        /// Whether only whole frames have come since the last check.
        var hasReadSinceLook = false
    }

    /// This connection's share of the server's load.
    struct Accounting {
        /// The number of bytes that are charged for what is held here.
        var bytes = 0
        /// The cost of the waiting answers and pushes and of what streams hold, in bytes, stored because every read
        /// needs it.
        var waiting = 0
        /// The number of bytes sent by the time the client's backlog was last measured.
        var bytesSent = 0
        var rest = RestWatch()
    }

    /// State that every request touches.
    struct Hot {
        var phase = Phase.open
        var machine: SessionMachine<Task<Void, Never>>
        var serverContext: ServerContext?
        var cachedRoute: CachedRoute
        var fastPath: FastPath
        var watching: Watching
        var accounting: Accounting
        /// The number of requests of this batch whose handlers run on this thread and have not begun.
        var startedHere = 0
        /// The number of requests on the slow path, up to the number at which the turn is checked.
        var slowRequests: UInt8 = 0
    }

    let loop: ServerLoop
    let core: ServerCore
    let listener: ListenerSettings
    let link: Link<FrameLanguage>
    /// The client's address, which behind a proxy differs from the socket's peer.
    private let remoteAddress: SocketAddress?
    /// The reason for which this client is closed immediately; nil: it is served.
    private let refusal: GoAway?
    let completions: CompletionQueue
    /// The resources that are held for this connection, here and by its handlers.
    let load: LedgerAccount
    /// The charge for the larger buffers of one that carries files, in bytes.
    var contentCost = 0
    // Unchecked: a request accesses it some five times, only on the event loop, and every access ends before any other
    // code is called.
    #if !DEBUG && !CHECKED_EXCLUSIVITY
    @exclusivity(unchecked)
    #endif
    var hot: Hot
    var greeting: Greeting
    var line: Line {
        didSet { self.noteWaiting() }
    }
    var bucket: TokenBucket?
    /// The unproductive frames that the client may still send.
    var unproductiveBucket: TokenBucket?
    /// The WebSocket that carries the frames, and the number of its pings and pongs that were taken from the bucket.
    var carriage: WebSocketCarriage? {
        didSet { self.carriage?.contextsChanged = { [load] in load.held($0) } }
    }
    var chargedControlFrames = 0
    /// The requests that the client may still cancel; nil before the first, and if there is no limit.
    var cancels: TokenBucket?
    /// The reason why the connection ends, once it does.
    var closeReason: ServerCloseReason?
    /// The timers that end requests at their deadlines, by run.
    var deadlines: [UInt64: SocketLoop.TimerID] = [:]
    var pushes: PushQueue {
        didSet { self.noteWaiting() }
    }
    /// The number of the last broadcast that was for it.
    var lastBroadcast: UInt64 = 0
    var placeOfSilence: SilenceOrder<any SilentConnection>.Place?
    /// The streams, once hello has agreed on them.
    var streams: ConnectionStreams?

    /// - Parameters:
    ///   - remoteAddress: The client's address; nil if it is unknown.
    ///   - refusal: The go-away for the client, if it is not served.
    init(
        loop: ServerLoop,
        core: ServerCore,
        listener: ListenerSettings,
        remoteAddress: SocketAddress?,
        refusal: GoAway? = nil
    ) {
        self.loop = loop
        self.core = core
        self.listener = listener
        self.remoteAddress = remoteAddress
        self.refusal = refusal
        let limits = core.limits
        let isStranger = core.hasStrangers
        self.link = Link(
            id: ConnectionID(number: refusal == nil ? core.nextConnectionID() : 0),
            loop: loop.socketLoop,
            // Slices of the read buffer: a synchronous handler's request costs no allocation. Asynchronous ones get a
            // copy of a small body instead, see `start`.
            language: FrameLanguage(
                decoder: Self.decoder(listener, limits, isStranger: isStranger),
                encoder: listener.encoder,
                largestCopied: Self.largestCopiedBody
            ),
            settings: listener.linkSettings
        )
        self.completions = CompletionQueue(loop: loop.socketLoop)
        self.load = LedgerAccount(core.ledger, shard: loop.index, baseCost: listener.connectionCost)
        let now = core.time.now()
        self.hot = Hot(
            machine: SessionMachine(
                maximumInFlight: limits.maximumInFlight(ofStranger: isStranger),
                format: listener.format,
                numbersAll: core.answersInOrder
            ),
            // Applications may have that type, in some formats.
            cachedRoute: CachedRoute(type: 0, route: core.routes[0]),
            fastPath: FastPath(core: core, listener: listener),
            watching: Watching(watch: SessionWatch(now: now, isStranger: isStranger)),
            accounting: Accounting()
        )
        self.greeting = Greeting(isStranger: isStranger)
        self.line = Line(order: core.answersInOrder ? AnswerOrder() : nil)
        self.bucket = limits.requestRate.map { TokenBucket($0, now: now) }
        self.unproductiveBucket = limits.unproductiveFrameRate.map { TokenBucket($0, now: now) }
        self.pushes = PushQueue(
            maximumCount: limits.maximumWaitingPushes,
            maximumBytes: limits.maximumWaitingPushBytes
        )
        self.link.host = self
        self.link.receiver = self
        self.link.tellsOfReads = true
    }

    // MARK: The connection's life

    /// Puts the link into a channel's pipeline.
    func add(
        to operations: ChannelPipeline.SynchronousOperations,
        position: ChannelPipeline.SynchronousOperations.Position = .last
    ) throws {
        do {
            try operations.addHandler(self.link, position: position)
        } catch {
            // It will never report its end, and we retain each other.
            self.link.host = nil
            self.link.receiver = nil
            throw error
        }
    }

    /// Detaches from a channel that speaks another protocol.
    func leavePipeline(_ operations: ChannelPipeline.SynchronousOperations) {
        self.ends(.upgraded)
        self.end()
        operations.removeHandler(self.link, promise: nil)
    }

    func linkChanged(_ change: LinkChange, _ id: ConnectionID, in turn: inout Turn) {
        switch change {
        case .active:
            self.begin(in: &turn)
        case .inputClosed:
            self.hot.machine.closedInput()
            self.ends(.closedByClient)
            self.probeSoon()
            if let streams = self.streams { self.inputOfStreamsClosed(streams, in: &turn) }
            self.finishIfDone(in: &turn)
        case .beatSent:
            self.hot.machine.pinged()
            self.takeStatistics()
        case .beatFailed(let error):
            let metadata: Logger.Metadata = ["connection": "\(id)", "error": "\(type(of: error))"]
            self.core.peerLog.write(.warning, "a heartbeat could not be created", metadata, by: self.core.logger)
        case .ended(let end):
            if case .peerIsDead = end.cause, self.hot.phase != .closed { self.hot.machine.statistics.deadPeers += 1 }
            self.ends(ServerCloseReason(end.cause))
            self.end()
        case .gone:
            self.end()
        case .alive, .beat:
            break
        }
    }

    /// The channel is connected.
    func begin(in turn: inout Turn) {
        guard self.hot.serverContext == nil, self.hot.phase == .open, let context = self.link.context else { return }
        // Accepted during the server's shutdown, by a loop that had no other connection, or after all connections were
        // closed and before the listener was: that client would be asked to leave, and might stay forever.
        guard self.loop.mayBegin else { return self.kill() }
        if let refusal = self.refusal {
            self.loop.addRefused(self)
            return self.dismiss(refusal, in: &turn)
        }
        let client = ConnectingClient(self.remoteAddress, context, listener: self.listener.endpoint)
        var identity: String?
        switch self.core.connections.admit?(client) {
        case nil, .admit: break
        case .admitAs(let name): identity = name
        case .refuse(let reason, let retryAfter):
            self.hot.machine.statistics.connectionsRefusedByAdmission += 1
            self.takeStatistics()
            self.loop.addRefused(self)
            return self.dismiss(GoAway(reason: reason, retryAfter: retryAfter), in: &turn)
        }
        let shown = ServerSession(
            id: self.link.id.number,
            remoteAddress: client.address,
            listener: self.listener.endpoint,
            peerCertificate: client.certificate,
            loop: self.loop,
            core: self.core,
            account: self.load,
            connection: self
        )
        self.hot.serverContext = ServerContext(session: shown)
        self.load.open(from: ClientAddress(self.remoteAddress), holder: shown)
        self.link.charge(to: self.load)
        if let identity { shown.authenticate(as: identity) }
        self.core.sessions.add(shown, shown.id)
        self.completions.open { self.takeCompletions(in: &$0) }
        self.hot.machine.statistics.connectionsAccepted += 1
        self.takeStatistics()
        self.loop.add(self)
        if let policy = self.core.heartbeat {
            self.link.startBeats(interval: policy.interval.interval(for: HeartbeatHistory()), in: &turn)
        }
        self.core.peerLog.write(
            .debug,
            "a client has connected",
            ["connection": "\(shown.id)", "remote": "\(self.remoteName)"],
            by: self.core.logger
        )
        self.core.connections.onConnect?(shown)
        if let policy = self.loop.draining { self.drain(policy, in: &turn) }
    }

    /// Makes the system find out soon whether a client that has closed its direction still waits for its answers: a
    /// client that has closed both looks the same until data is sent to it.
    private func probeSoon() {
        guard self.hot.machine.inFlight > 0, let options = self.link.context?.channel.syncOptions else { return }
        // They fail where it is no TCP connection.
        try? options.setOption(.socketOption(.so_keepalive), value: 1)
        for (option, value) in KeepAlive.options(after: .seconds(5), every: .seconds(5), count: 3) {
            try? options.setOption(.tcpOption(option), value: value)
        }
    }

    var remoteName: String { self.hot.serverContext?.session.remoteAddress.map { "\($0)" } ?? "unknown" }

    private func end() {
        guard self.hot.phase != .closed else { return }
        self.hot.phase = .closed
        self.load.held(-self.contentCost)
        self.stopHandlers()
        if let alarm = self.streams?.alarm { self.loop.socketLoop.removeTimer(alarm) }
        self.streams = nil
        self.pushes.removeAll()
        self.line = Line()
        // Handlers that have not returned hold their requests.
        self.account()
        self.load.close()
        self.takeStatistics()
        self.loop.remove(self)
        if let session = self.hot.serverContext?.session {
            self.core.peerLog.write(
                .debug,
                "a connection has ended",
                ["connection": "\(session.id)"],
                by: self.core.logger
            )
            self.core.sessions.remove(session.id)
            // Called before the session ends, so that it still has its values.
            self.core.connections.onClose?(session, self.closeReason ?? .connectionLost)
            session.end()
        }
        // The session and the connection retain each other.
        self.hot.serverContext = nil
        self.carriage = nil
    }

    func stopHandlers() {
        for task in self.hot.machine.close() { task.cancel() }
        self.streams?.lose()
        self.greeting.authentication?.cancel()
        for timer in self.deadlines.values { self.loop.socketLoop.removeTimer(timer) }
        self.deadlines = [:]
        for completion in self.completions.close() {
            _ = self.hot.machine.finished(
                serial: completion.answer.serial,
                run: completion.run,
                bytes: completion.requestCost
            )
            self.load.held(-completion.answerCost)
        }
    }

    /// Records why the connection ends, unless it ends already.
    func ends(_ reason: ServerCloseReason) {
        if self.closeReason == nil { self.closeReason = reason }
    }

    /// Closes at once.
    func kill() {
        self.ends(.shutdown)
        self.end()
        self.link.kill()
    }

    /// Adds the connection's counts to those of the event loop.
    func takeStatistics() {
        self.loop.counters.take(&self.hot.machine.statistics)
    }
}
