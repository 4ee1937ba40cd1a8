// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// A WebSocket that carries messages, at the server: its link, its handler, and its end. On the connection's thread.
final class MessageSession: LinkHost {
    let link: Link<WebSocketLanguage>
    let loop: ServerLoop
    private let core: ServerCore
    private let route: WebSocketRoute
    private let inbox: WebSocketInbox
    private let load: LedgerAccount
    private var peer: WebSocketPeer?
    private var connection: WebSocketConnection?
    private var task: Task<Void, Never>?
    /// The reason why the connection ends, once it does.
    private var closeReason: ServerCloseReason?
    private var watch: SessionWatch
    /// The traffic at the last check, and the number of messages in it.
    private var seen = Traffic()
    private var seenMessages = 0
    /// The time of the last check at which bytes had been sent: a client that only listens is not idle.
    private var sentAt: NIODeadline
    var placeOfSilence: SilenceOrder<any SilentConnection>.Place?
    /// The pings and pongs that the client may still send, and the number that was already charged to it.
    private var controlBucket: TokenBucket?
    private var chargedControlFrames = 0

    /// Finds the session from other threads.
    private final class Place: @unchecked Sendable {
        // Proof of Sendable: set before it is shared, and read on the connection's thread.
        weak var session: MessageSession?
    }

    /// - Parameter cost: The memory that the connection costs by itself, in bytes.
    init(
        _ route: WebSocketRoute,
        _ deflate: DeflateAgreement?,
        _ loop: ServerLoop,
        _ core: ServerCore,
        cost: Int
    ) {
        self.route = route
        self.loop = loop
        self.core = core
        let now = core.time.now()
        self.watch = SessionWatch(now: now)
        self.sentAt = now
        self.controlBucket = core.limits.unproductiveFrameRate.map { TokenBucket($0, now: now) }
        var limits = WebSocketLimits()
        limits.maximumMessageLength = route.options.maximumMessageLength
        limits.maximumFragments = route.options.maximumFragments
        let link = Link(
            id: ConnectionID(number: core.nextConnectionID()),
            loop: loop.socketLoop,
            language: WebSocketLanguage(
                role: .server,
                limits: limits,
                deflate: deflate,
                compression: route.options.compression,
                buffers: loop.socketLoop.buffers
            ),
            settings: Self.settings(route.options, core)
        )
        self.link = link
        let place = Place()
        self.load = LedgerAccount(core.ledger, shard: loop.index, baseCost: cost)
        self.inbox = WebSocketInbox(account: self.load) {
            loop.socketLoop.submit(
                .closure { turn in
                    guard let session = place.session else { return }
                    session.link.setReading(isSuspended: session.inbox.isFull, in: &turn)
                }
            )
        }
        // Not for a handler that is called for each message, which leaves the inbox empty: reference counting is slower
        // once an object has been referenced weakly.
        if case .task = route.handler { place.session = self }
        link.host = self
    }

    private static func settings(_ options: WebSocketRouteOptions, _ core: ServerCore) -> LinkSettings<WebSocketUnit> {
        var settings = LinkSettings<WebSocketUnit>(
            maximumQueuedBytes: core.limits.maximumBufferedBytesPerConnection,
            writeStallTimeout: core.limits.writeStallTimeout.map { TimeAmount(clamping: $0) }
        )
        // Closures that capture something are memory of each connection.
        if let heartbeat = options.heartbeat {
            settings.beats = { interval, now in
                guard let interval else { return nil }
                let monitor = HeartbeatMonitor(heartbeat, interval: interval, canPing: true, now: now)
                return Beats(monitor: monitor, now: now)
            }
            settings.makeBeat = { WebSocketUnit(.ping, try heartbeat.beat(limit: 125)) }
        }
        settings.readsOnlyWhileWritable = true
        settings.sharesTurns = true
        settings.sharesReceiveBuffers = true
        settings.outputLimit = 1 << 20
        settings.gathersPieces = true
        settings.partingTime = .seconds(5)
        return settings
    }

    /// The link is in the pipeline.
    ///
    /// - Parameters:
    ///   - head: The client's request.
    ///   - subprotocol: The one that was selected.
    func begin(
        _ head: OpeningRequestHead,
        subprotocol: String?,
        _ address: SocketAddress?,
        identity: String?,
        in turn: inout Turn
    ) {
        let connection = WebSocketConnection(
            id: self.link.id.number,
            address,
            identity: identity,
            KeptRequest(head),
            subprotocol: subprotocol,
            self.inbox,
            self
        )
        self.connection = connection
        self.load.open(from: ClientAddress(address), holder: connection)
        self.load.held(connection.kept.memory)
        self.link.charge(to: self.load)
        if let identity {
            self.load.setIdentity(identity)
            self.core.registry.add(connection, identity).dismissed?.dismiss()
        }
        let delivery: WebSocketPeer.Delivery
        switch self.route.handler {
        case .task: delivery = .inbox(self.inbox)
        case .synchronous(let handler): delivery = .handler { handler($0, connection) }
        }
        let peer = WebSocketPeer(self.link, role: .server, delivery) { close in
            LinkEnd(.said(SocketError(.connectionLost, message: "closed by the client: \(close.code ?? 1_005)")))
        } ended: { units, _ in
            let error = SocketError(.connectionLost, message: "the connection has ended")
            for unit in units { unit.outcome?.complete(.failure(error)) }
        }
        self.peer = peer
        self.link.receiver = peer
        self.loop.counters.count(\.connectionsAccepted)
        self.loop.add(self)
        self.core.webSockets.add(connection, connection.id)
        self.core.connections.onWebSocketConnect?(connection)
        if let heartbeat = self.route.options.heartbeat {
            self.link.startBeats(interval: heartbeat.interval.interval(for: HeartbeatHistory()), in: &turn)
        }
        if case .task(let handler) = self.route.handler { self.run(handler, connection) }
        if self.loop.draining != nil { self.drain(in: &turn) }
    }

    private func run(
        _ handler: @escaping @Sendable (WebSocketConnection) async throws -> Void,
        _ connection: WebSocketConnection
    ) {
        let core = self.core
        self.task = Task {
            do {
                try await handler(connection)
                connection.close()
            } catch {
                if !Task.isCancelled {
                    core.peerLog.write(
                        .error,
                        "a WebSocket handler failed",
                        ["connection": "\(connection.id)", "error": "\(error)"],
                        by: core.logger
                    )
                }
                connection.close(code: 1_011)
            }
        }
    }

    // MARK: Sending

    func send(_ unit: WebSocketUnit, in turn: inout Turn) {
        guard self.peer?.send(unit, in: &turn) != true else { return }
        let isOpen = self.link.phase == .open
        unit.outcome?.complete(
            .failure(
                isOpen
                    ? SocketError(
                        .queueFull,
                        message: """
                            too many bytes wait for the client to read (ServerLimits.maximumBufferedBytesPerConnection)
                            """
                    )
                    : SocketError(.connectionLost, message: "the connection has ended")
            )
        )
    }

    // MARK: The end

    func close(_ close: WebSocketClose, _ reason: ServerCloseReason = .closedByServer, in turn: inout Turn) {
        guard self.link.phase == .open else { return }
        // A handler returns when the client has closed, too.
        self.ends(self.peer?.received == nil ? reason : .closedByClient)
        self.link.setClose(close)
        self.link.close(.done, in: &turn)
    }

    /// The server shuts down.
    func drain(in turn: inout Turn) {
        self.close(WebSocketClose(code: 1_001), .shutdown, in: &turn)
    }

    /// Records why the connection ends, unless it ends already.
    private func ends(_ reason: ServerCloseReason) {
        if self.closeReason == nil { self.closeReason = reason }
    }

    func kill() {
        self.ends(.shutdown)
        self.link.kill()
    }

    /// Too much is held.
    func evict(in turn: inout Turn) {
        self.loop.counters.count(\.memoryEvictions)
        // A client that does not read would not read the reason either.
        self.link.kill()
    }

    /// The client's identity has too many connections.
    func dismiss(in turn: inout Turn) {
        guard self.link.phase == .open else { return }
        self.loop.counters.count(\.sessionsDismissed)
        let reason = "there are too many connections of this identity"
        self.close(WebSocketClose(code: 1_008, reason: reason), .limit, in: &turn)
    }

    /// Called from time to time.
    func checkTimeouts(in turn: inout Turn) {
        self.link.settleNow()
        self.load.settle()
        self.loop.silence.look(at: self, now: turn.now)
        if self.isFlooded(now: turn.now), self.link.phase == .open {
            self.loop.counters.count(\.frameFloods)
            return self.close(WebSocketClose(code: 1_008, reason: "there are too many pings"), in: &turn)
        }
        self.noteTraffic(now: turn.now)
        let times = SessionWatch.Times(self.core.limits)
        let observation = SessionWatch.Observation(
            self.link,
            isBusy: times.idle.map { turn.now - self.sentAt < $0 } ?? true,
            // Messages that wait for our own handler do not wait for the client.
            isReadingSuspended: self.inbox.isFull || self.link.hasLeftUnits
        )
        if observation.isReadingHeld { self.load.progressed(at: turn.now) }
        guard self.link.phase == .open,
            let verdict = self.watch.verdict(observation, times, now: turn.now)
        else { return }
        self.evict(verdict, in: &turn)
    }

    /// Reports the traffic since the last check to the watch and to the ledger.
    private func noteTraffic(now: NIODeadline) {
        let traffic = self.link.traffic
        let hasReceived = traffic.bytesReceived != self.seen.bytesReceived
        let hasSent = traffic.bytesSent != self.seen.bytesSent
        // A ping within a message does not complete it.
        let messages = traffic.framesReceived - (self.peer?.controlFrames ?? 0)
        if hasReceived {
            self.watch.received(
                traffic.bytesReceived - self.seen.bytesReceived,
                partialBytes: self.link.unfinishedBytes,
                frames: messages != self.seenMessages,
                now: now
            )
        }
        // It was whole, and has been taken now.
        if !hasReceived, self.link.unfinishedBytes == 0 { self.watch.frameWasGivenUp() }
        if hasSent { self.sentAt = now }
        if hasReceived || hasSent { self.load.progressed(at: now) }
        self.seen = traffic
        self.seenMessages = messages
    }

    private func evict(_ verdict: SessionWatch.Verdict, in turn: inout Turn) {
        let limits = self.core.limits
        switch verdict {
        case .stalledReading:
            self.loop.counters.count(\.readStalls)
            let reason = "a message has not got on for \(limits.readStallTimeout ?? .zero), or too slowly"
            self.close(WebSocketClose(code: 1_008, reason: reason), .tooSlow, in: &turn)
        case .stalledWriting:
            self.loop.counters.count(\.writeStalls)
            self.ends(.tooSlow)
            // A client that does not read cannot be notified.
            self.link.kill()
        case .idle:
            self.loop.counters.count(\.idleEvictions)
            let reason = "nothing has happened for \(limits.idleTimeout ?? .zero)"
            self.close(WebSocketClose(code: 1_001, reason: reason), .timedOut, in: &turn)
        case .noFirstFrame, .unknown:
            break
        }
    }

    /// Whether the client sends more pings and pongs than it may.
    private func isFlooded(now: NIODeadline) -> Bool {
        guard let peer = self.peer, peer.controlFrames > self.chargedControlFrames else { return false }
        let count = peer.controlFrames - self.chargedControlFrames
        self.chargedControlFrames = peer.controlFrames
        return self.controlBucket?.take(count, now: now) == false
    }

    func linkChanged(_ change: LinkChange, _ id: ConnectionID, in turn: inout Turn) {
        switch change {
        case .inputClosed:
            // Without a close frame.
            self.close(WebSocketClose(code: 1_001), .closedByClient, in: &turn)
        case .ended(let end):
            self.ends(ServerCloseReason(end.cause))
            if case .peerIsDead = end.cause { self.loop.counters.count(\.deadPeers) }
            if case .writeStalled = end.cause { self.loop.counters.count(\.writeStalls) }
            self.inbox.finish()
        case .gone:
            self.inbox.finish()
            if let connection = self.connection { self.load.held(-connection.kept.memory) }
            self.load.close()
            self.task?.cancel()
            if let connection = self.connection {
                self.core.webSockets.remove(connection.id)
                if let identity = connection.identity { self.core.registry.remove(connection, identity) }
                self.core.connections.onWebSocketClose?(connection, self.closeReason ?? .connectionLost)
            }
            self.connection = nil
            self.peer = nil
            self.loop.remove(self)
        case .active, .alive, .beat, .beatSent, .beatFailed:
            break
        }
    }
}

extension MessageSession: SilentConnection {
    var bytesReceived: Int { self.link.traffic.bytesReceived }
    /// A client that only listens shows by its pings that it is alive.
    var isBusy: Bool { false }

    func closeForNewcomer(in turn: inout Turn) {
        guard self.link.phase == .open else { return self.kill() }
        self.loop.counters.count(\.silentEvictions)
        self.close(WebSocketClose(code: 1_001, reason: "connections are scarce, and this one was silent"), in: &turn)
        _ = self.loop.socketLoop.setTimer(turn.now + LoopSilence.lastWordTime) { _ in self.kill() }
    }
}
