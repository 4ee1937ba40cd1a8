// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// A peer that speaks in messages over a WebSocket: its link, its handler, and its close frame. On the connection's
/// thread.
final class WebSocketSession {
    private let peer: ServerPeer
    private let link: Link<WebSocketLanguage>
    private let route: WebSocketRoute
    private let request: KeptRequest
    private let subprotocol: String?
    private let inbox: WebSocketInbox
    private var receiver: WebSocketPeer?
    private var connection: WebSocketConnection?
    private var task: Task<Void, Never>?

    /// Finds the session from other threads.
    private final class SessionReference: @unchecked Sendable {
        // Proof of Sendable: set before it is shared, and read on the connection's thread.
        fileprivate weak var session: WebSocketSession?
    }

    /// - Parameters:
    ///   - head: The client's request.
    ///   - agreement: The answer to it.
    init(_ peer: ServerPeer, route: WebSocketRoute, opening head: OpeningRequestHead, agreement: OpeningAgreement) {
        self.peer = peer
        self.route = route
        self.request = KeptRequest(head)
        self.subprotocol = agreement.subprotocol
        let loop = peer.loop.socketLoop
        var limits = WebSocketLimits()
        limits.maximumMessageLength = route.options.maximumMessageLength
        limits.maximumFragments = route.options.maximumFragments
        self.link = peer.makeLink(
            WebSocketLanguage(
                role: .server,
                limits: limits,
                deflate: agreement.deflate,
                compression: route.options.compression,
                buffers: loop.buffers,
                account: peer.account
            ),
            Self.settings(route.options, peer.parts.rules.limits)
        )
        let reference = SessionReference()
        self.inbox = WebSocketInbox(account: peer.account) {
            loop.submit { turn in
                guard let session = reference.session else { return }
                session.link.setReading(isSuspended: session.inbox.isFull, in: &turn)
            }
        }
        // Not for a handler that is called for each message, which leaves the inbox empty: reference counting is slower
        // once an object has been referenced weakly.
        if case .task = route.handler { reference.session = self }
        peer.serve(self, over: self.link)
    }

    private static func settings(_ options: WebSocketRouteOptions, _ limits: ServerLimits) -> LinkSettings<
        WebSocketUnit
    > {
        var settings = LinkSettings<WebSocketUnit>(maximumQueuedBytes: limits.maximumBufferedBytesPerConnection)
        // Closures that capture something are memory of each connection.
        if let heartbeat = options.heartbeat {
            settings.beats = { interval, now in
                guard let interval else { return nil }
                let monitor = HeartbeatMonitor(heartbeat, interval: interval, canPing: true, now: now)
                return Beats(monitor: monitor, now: now)
            }
            settings.makeBeat = { WebSocketUnit(.ping, try heartbeat.beat(limit: 125)) }
        }
        settings.sharesReceiveBuffers = true
        settings.outputLimit = 1 << 20
        settings.gathersPieces = true
        settings.partingTime = .seconds(5)
        return settings
    }

    /// Puts the link into the pipeline of a connected channel, and begins.
    func begin(
        _ operations: ChannelPipeline.SynchronousOperations,
        after handler: any ChannelHandler,
        _ decision: ServerPeer.Decision
    ) throws {
        try self.peer.add(self.link, to: operations, position: .after(handler))
        self.peer.loop.socketLoop.enter { self.peer.begin(decision, in: &$0) }
    }

    private func run(
        _ handler: @escaping @Sendable (WebSocketConnection) async throws -> Void,
        _ connection: WebSocketConnection
    ) {
        let (peerLog, logger) = (self.peer.parts.books.peerLog, self.peer.parts.books.logger)
        self.task = Task {
            do {
                try await handler(connection)
                connection.close()
            } catch {
                if !Task.isCancelled {
                    peerLog.write(
                        .error,
                        "a WebSocket handler failed",
                        metadata: ["connection": "\(connection.id)", "error": "\(error)"],
                        by: logger
                    )
                }
                connection.close(code: 1_011)
            }
        }
    }
}

extension WebSocketSession: WebSocketSender {
    func send(_ unit: WebSocketUnit, in turn: inout Turn) {
        guard self.receiver?.send(unit, in: &turn) != true else { return }
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

    func close(_ close: WebSocketClose, in turn: inout Turn) {
        guard self.link.phase == .open else { return }
        // A handler returns when the client has closed, too.
        self.peer.ends(self.receiver?.received == nil ? .closedByServer : .closedByClient)
        self.link.setClose(close)
        self.link.close(.done, in: &turn)
    }
}

extension WebSocketSession: PeerSession {
    /// A handler waits for its client: a client that only listens shows by its pings that it is alive.
    var workOfOurs: Int { 0 }

    func state() -> PeerState {
        // A ping within a message does not complete it.
        let controlFrames = self.receiver?.controlFrames ?? 0
        return PeerState(
            units: self.link.traffic.framesReceived - controlFrames,
            isIntroduced: true,
            // Fragments are in the link.
            pieceBytes: nil,
            isBusy: false,
            mayListen: true,
            isHeldByUs: self.inbox.isFull || self.link.hasDeferredUnits,
            isHeldByPeer: false,
            // The link refuses more than may wait.
            waitingBytes: 0,
            controlFrames: controlFrames
        )
    }

    func opened(_ port: PeerPort, in turn: inout Turn) {
        let parts = self.peer.parts
        let connection = WebSocketConnection(
            id: self.link.id.number,
            remoteAddress: self.peer.address,
            request: self.request,
            hold: Hold(self.request.resource, of: self.peer.account),
            subprotocol: self.subprotocol,
            inbox: self.inbox,
            port: port,
            sender: self
        )
        self.connection = connection
        let delivery: WebSocketPeer.Delivery
        switch self.route.handler {
        case .task: delivery = .inbox(self.inbox)
        case .synchronous(let handler): delivery = .handler { handler($0, connection) }
        }
        let receiver = WebSocketPeer(self.link, role: .server, delivery) { close in
            LinkEnd(.said(SocketError(.connectionLost, message: "closed by the client: \(close.code ?? 1_005)")))
        } ended: { units, _ in
            let error = SocketError(.connectionLost, message: "the connection has ended")
            for unit in units { unit.outcome?.complete(.failure(error)) }
        }
        self.receiver = receiver
        self.link.receiver = receiver
        parts.books.webSockets.add(connection, connection.id)
        parts.rules.connections.onWebSocketConnect?(connection)
        if let heartbeat = self.route.options.heartbeat {
            self.link.startBeats(interval: heartbeat.interval.interval(for: HeartbeatHistory()), in: &turn)
        }
        if case .task(let handler) = self.route.handler { self.run(handler, connection) }
    }

    func inputClosed(in turn: inout Turn) {
        self.inbox.finish()
        // Without a close frame of the client's.
        self.close(WebSocketClose(code: 1_001), in: &turn)
    }

    func beatSent(in turn: inout Turn) {}

    func ended(_ reason: ServerCloseReason) {
        self.inbox.finish()
        self.task?.cancel()
        if let connection = self.connection {
            let parts = self.peer.parts
            parts.books.webSockets.remove(connection.id)
            parts.rules.connections.onWebSocketClose?(connection, reason)
        }
        self.connection = nil
        self.receiver = nil
    }

    /// The limits on messages are the same for everyone.
    func identityChanged(in turn: inout Turn) {}

    func say(_ farewell: Farewell, in turn: inout Turn) -> Bool {
        guard self.link.phase == .open else { return false }
        switch farewell.kind {
        case .violation: self.close(WebSocketClose(code: 1_008, reason: farewell.reason), in: &turn)
        case .departure: self.close(WebSocketClose(code: 1_001, reason: farewell.reason), in: &turn)
        // The client's close frame would be waited for.
        case .memory: return false
        }
        return true
    }

    func drain(_ policy: ShutdownPolicy, in turn: inout Turn) {
        self.close(WebSocketClose(code: 1_001), in: &turn)
    }

    func stop(in turn: inout Turn) -> Bool { false }

    func giveUpPartial(in turn: inout Turn) -> Bool { false }

    var streamHost: (any StreamHost)? { nil }

    /// Frames are pushed, messages are not.
    func push(_ push: SharedPush, in turn: inout Turn) -> Bool { false }

    func rest() {}
}
