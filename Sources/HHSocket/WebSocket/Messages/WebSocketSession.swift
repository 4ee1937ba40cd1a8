import NIOConcurrencyHelpers
import NIOCore

/// The part of a ``WebSocketLink`` on its thread: makes links, queues what waits for one, and reports events.
final class WebSocketSession: LinkMaker, DriverHost, TurnHost, @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable or locked; the rest is touched on the socket thread alone, or set
    // before the first submission.
    private struct Ready {
        var peer: WebSocketPeer
        var agreement: OpeningAgreement?
        var endpoint: Endpoint
    }

    private let configuration: WebSocketLink.Configuration
    let inbox: WebSocketInbox
    let delegation: WebSocketDelegation
    private let streams = NIOLockedValueBox<(next: Int, all: [Int: AsyncStream<WebSocketLink.Event>.Continuation])?>(
        (0, [:])
    )
    private let handler = NIOLockedValueBox<(@Sendable (WebSocketMessage) -> Void)?>(nil)
    private let suspension: Suspension
    /// Holds this object until it is invalidated.
    private weak var driver: Driver?
    private var pending: Ready?
    private var ready: Ready?
    /// Whether the server is left, and nothing new goes there.
    private var isLeaving = false
    private var waiting: WaitingLine<WebSocketUnit>
    private var ownClose: WebSocketClose?
    /// The connection that the user has closed, until it is gone, and our close frame.
    private var parting: (peer: WebSocketPeer, close: WebSocketClose)?
    /// Why no connection is made any more.
    private var closed: SocketError?
    private var isReconnectDeferred = false

    /// Passes on that the users are behind, or are so no longer, to a session that is there later.
    private final class Suspension: Sendable {
        private let session = NIOLockedValueBox<Weak?>(nil)

        private struct Weak: Sendable {
            weak var session: WebSocketSession?
        }

        func attach(_ session: WebSocketSession) {
            self.session.withLockedValue { $0 = Weak(session: session) }
        }

        func update() {
            guard let session = self.session.withLockedValue({ $0?.session }), let driver = session.driver else {
                return
            }
            driver.submit(
                .closure { turn in
                    // Asked anew: since this was submitted it may have changed again.
                    let isSuspended = session.inbox.isFull || session.delegation.isFull
                    driver.perform(.setReading(isSuspended: isSuspended), in: &turn)
                }
            )
        }
    }

    /// Why this configuration cannot work; nil: it can.
    let refusal: SocketError?

    init(_ configuration: WebSocketLink.Configuration) {
        self.configuration = configuration
        let suspension = Suspension()
        self.suspension = suspension
        self.inbox = WebSocketInbox { suspension.update() }
        self.delegation = WebSocketDelegation { suspension.update() }
        self.waiting = WaitingLine(
            maximumCount: configuration.maximumWaitingMessages,
            maximumBytes: configuration.socket.maximumQueuedBytes
        )
        self.refusal = configuration.socket.servers.first { !$0.isWebSocket }.map { server in
            SocketError(
                .invalidArgument,
                message: "\(server) is no URL of a WebSocket; write ws://\(server)/path",
                endpoint: server
            )
        }
    }

    func attach(to driver: Driver) {
        self.driver = driver
        self.suspension.attach(self)
    }

    // MARK: Any thread

    func setHandler(_ handler: (@Sendable (WebSocketMessage) -> Void)?) {
        self.handler.withLockedValue { $0 = handler }
    }

    func makeEvents() -> AsyncStream<WebSocketLink.Event> {
        let (stream, continuation) = AsyncStream.makeStream(
            of: WebSocketLink.Event.self,
            bufferingPolicy: .bufferingNewest(EventStreams.bufferLimit)
        )
        let id: Int? = self.streams.withLockedValue { streams in
            guard let id = streams?.next else { return nil }
            streams?.next += 1
            streams?.all[id] = continuation
            return id
        }
        guard let id else {
            continuation.finish()
            return stream
        }
        continuation.onTermination = { [weak self] _ in
            self?.streams.withLockedValue { _ = $0?.all.removeValue(forKey: id) }
        }
        return stream
    }

    private func report(_ event: WebSocketLink.Event) {
        for continuation in self.streams.withLockedValue({ Array(($0?.all ?? [:]).values) }) {
            continuation.yield(event)
        }
        if let loop = self.driver?.loop { self.delegation.notify(of: event, on: loop) }
    }

    // MARK: Links

    var linksMayOverlap: Bool { false }

    func webSocketOffer() throws(SocketError) -> WebSocketOffer {
        var offer = WebSocketOffer()
        offer.subprotocols = self.configuration.subprotocols
        offer.compression = self.configuration.compression
        return offer
    }

    func makeLink(
        _ id: ConnectionID,
        _ endpoint: Endpoint,
        _ agreement: OpeningAgreement?,
        _ loop: SocketLoop,
        _ host: any LinkHost
    ) throws(SocketError) -> any ChannelHandler & DrivenLink {
        var limits = WebSocketLimits()
        limits.maximumMessageLength = self.configuration.maximumMessageLength
        limits.maximumFragments = self.configuration.maximumFragments
        let link = Link(
            id: id,
            loop: loop,
            language: WebSocketLanguage(
                role: .client,
                limits: limits,
                deflate: agreement?.deflate,
                compression: self.configuration.compression,
                buffers: loop.buffers
            ),
            settings: self.settings,
            host: host
        )
        let delivery = self.delivery
        let reconnects = self.configuration.reconnects
        let peer = WebSocketPeer(link, role: .client, delivery) {
            $0.end(reconnects: reconnects)
        } ended: { [weak self] units, _ in
            self?.linkEnded(id, units)
        }
        peer.pongCame = { [delegation] payload in
            delegation.notify(on: loop) { $0.webSocketLink($1, didReceivePong: payload) }
        }
        link.receiver = peer
        self.pending = Ready(peer: peer, agreement: agreement, endpoint: endpoint)
        return link
    }

    /// The receiver of the messages of the next connection.
    private var delivery: WebSocketPeer.Delivery {
        if let handler = self.handler.withLockedValue({ $0 }) { return .handler(handler) }
        return self.delegation.delegate == nil ? .inbox(self.inbox) : .delegate(self.delegation)
    }

    private var settings: LinkSettings<WebSocketUnit> {
        let socket = self.configuration.socket
        let (heartbeat, message) = (socket.heartbeat, self.configuration.heartbeatMessage)
        var settings = LinkSettings<WebSocketUnit>(
            // What waits is bounded before it is sent.
            maximumQueuedBytes: .max,
            writeStallTimeout: TimeAmount(clamping: socket.writeStallTimeout)
        ) { interval, now in
            guard let heartbeat, let interval else { return nil }
            return Beats(
                monitor: HeartbeatMonitor(heartbeat, interval: interval, canPing: true, now: now),
                now: now
            )
        } makeBeat: {
            if let message = try message?() {
                var beat = WebSocketUnit(.message(message.wireKind), message.payload)
                beat.isBeat = true
                return beat
            }
            guard let heartbeat else { return nil }
            return WebSocketUnit(.ping, try heartbeat.beat(limit: WebSocketFrameHeader.maximumControlLength))
        }
        settings.partingTime = WebSocketLanguage.patience
        return settings
    }

    func shakeHands(_ id: ConnectionID, attempt: Int, in turn: inout Turn) {
        // Gates speak in frames, of which there are none.
        self.driver?.perform(.gateReturned(id, nil), in: &turn)
    }

    func pendingEnded(_ id: ConnectionID, _ error: SocketError, in turn: inout Turn) {
        self.pending = nil
    }

    private func linkEnded(_ id: ConnectionID, _ units: [WebSocketUnit]) {
        for unit in units where !unit.isBeat && unit.outcome?.isOpen ?? true {
            guard case .message = unit.kind else { continue }
            if let closed = self.closed, self.driver?.isClosed ?? true {
                unit.outcome?.complete(.failure(closed))
            } else {
                self.wait(unit, isReturning: true)
            }
        }
        if self.parting?.peer.link.id == id { self.reportOwnClose() }
    }

    /// Puts a message into the line of those that wait for a connection.
    private func wait(_ unit: WebSocketUnit, isReturning: Bool = false) {
        let cost = unit.payload.readableBytes
        unit.outcome?.waitingCost = cost
        self.waiting.append(unit, .default, cost: cost, isReturning: isReturning)
    }

    private static func isStub(_ unit: WebSocketUnit) -> Bool { !(unit.outcome?.isOpen ?? true) }

    private func popWaiting() -> WebSocketUnit? {
        let unit = self.waiting.popFirst(unless: Self.isStub)
        unit?.outcome?.waitingCost = nil
        return unit
    }

    // MARK: Connections

    func connectionChanged(_ change: ConnectionChange, in turn: inout Turn) {
        switch change {
        case .ready(let id, _):
            guard let pending = self.pending, pending.peer.link.id == id else { return }
            self.pending = nil
            self.ready = pending
            self.isLeaving = false
            // It was chosen for an earlier connection.
            self.ownClose = nil
            self.isReconnectDeferred = false
            let headers = pending.agreement?.headers.all.map { (name: $0.name, value: $0.value) } ?? []
            self.report(.opened(pending.endpoint, subprotocol: pending.agreement?.subprotocol, headers: headers))
            self.sendWaiting(in: &turn)
        case .goingAway:
            self.isLeaving = true
        case .lost(let id, let error):
            self.lose(id, error)
        case .reconnectDeferred:
            self.isReconnectDeferred = true
            if !self.waiting.isEmpty { self.reconnectSooner(in: &turn) }
        case .draining(let id):
            self.driver?.perform(.finishDraining(id), in: &turn)
        case .happened(let event):
            self.happened(event, in: &turn)
        case .invalidated:
            self.reportOwnClose()
            self.failAll(Driver.closedByUser)
            self.inbox.finish()
            let streams = self.streams.withLockedValue { streams in
                defer { streams = nil }
                return Array((streams?.all ?? [:]).values)
            }
            for stream in streams { stream.finish() }
        case .beingMade, .offline:
            break
        }
    }

    private func lose(_ id: ConnectionID, _ error: SocketError) {
        guard let ready = self.ready, ready.peer.link.id == id else { return }
        self.ready = nil
        // The user has closed it.
        if error.code == .cancelled { return self.part(with: ready.peer) }
        let closure = error.underlying as? WebSocketClosure ?? ready.peer.received.map { WebSocketClosure($0) }
        self.report(
            .closed(
                WebSocketLink.Closure(
                    code: closure?.code ?? 1_006,
                    reason: closure?.reason ?? "",
                    wasClean: closure != nil,
                    error: error
                )
            )
        )
    }

    /// The user has closed a connection: its end is told when it is gone.
    private func part(with peer: WebSocketPeer) {
        self.parting = (peer, self.ownClose ?? WebSocketClose(code: 1_000))
        if peer.link.phase == .ended { self.reportOwnClose() }
    }

    private func reportOwnClose() {
        guard let (peer, close) = self.parting.take() else { return }
        self.report(
            .closed(
                WebSocketLink.Closure(
                    code: close.code ?? 1_000,
                    reason: close.reason,
                    wasClean: peer.received != nil,
                    error: nil
                )
            )
        )
    }

    private func happened(_ event: SocketEvent, in turn: inout Turn) {
        self.report(.connection(event))
        switch event {
        case .closed:
            // It is left for another one, and not gone yet.
            if let ready = self.ready.take() { self.part(with: ready.peer) }
            self.ownClose = nil
            self.failAll(Driver.closedByUser)
        case .gaveUp(let error):
            self.failAll(error)
        case .willEnterForeground:
            self.driver?.connectAgain(in: &turn)
        default:
            break
        }
    }

    private func failAll(_ error: SocketError) {
        var error = error
        // Nothing of what waits has left, whatever was lost with the connection.
        error.delivery = .notSent
        self.closed = error
        while let unit = self.popWaiting() { unit.outcome?.complete(.failure(error)) }
    }

    private func reconnectSooner(in turn: inout Turn) {
        self.isReconnectDeferred = false
        self.driver?.perform(.reconnectSooner, in: &turn)
    }

    func setClose(_ close: WebSocketClose) {
        self.ownClose = close
        self.ready?.peer.link.setClose(close)
    }

    func turnEnds(in turn: inout Turn) {}
    func turnEnded() { self.driver?.measure() }

    // MARK: Sending

    func send(_ unit: WebSocketUnit, in turn: inout Turn) {
        if case .message(.text) = unit.kind {
            var validator = UTF8Validator()
            guard unit.payload.withUnsafeReadableBytes({ validator.append($0) }), validator.isComplete else {
                return self.refuse(unit, .invalidArgument, "a text message is not UTF-8; send it as binary")
            }
        }
        if let ready = self.ready, !self.isLeaving, self.waiting.isEmpty, ready.peer.link.phase == .open {
            let (cost, link) = (unit.payload.readableBytes, ready.peer.link)
            let limit = self.configuration.socket.maximumQueuedBytes
            guard link.waitingBytes == 0 || cost <= limit - link.waitingBytes, ready.peer.send(unit, in: &turn) else {
                return self.refuse(unit, .queueFull, "too many bytes wait for the server to read (maximumQueuedBytes)")
            }
            return
        }
        guard let driver = self.driver, !driver.isClosed || driver.hasRunOut else {
            unit.outcome?.complete(.failure(self.driver?.notConnected() ?? Driver.closedByUser))
            return
        }
        if self.isReconnectDeferred { self.reconnectSooner(in: &turn) }
        guard self.waiting.hasRoom(for: unit.payload.readableBytes) else {
            return self.refuse(unit, .queueFull, "too many messages wait for a connection (maximumWaitingMessages)")
        }
        self.wait(unit)
        if driver.hasRunOut { driver.connectAgain(in: &turn) }
    }

    private func refuse(_ unit: WebSocketUnit, _ code: SocketError.Code, _ message: String) {
        unit.outcome?.complete(.failure(SocketError(code, message: message, endpoint: self.ready?.endpoint)))
    }

    private func sendWaiting(in turn: inout Turn) {
        guard let ready = self.ready, !self.isLeaving else { return }
        // One that closes takes nothing; what waits leaves after the next opening.
        while ready.peer.link.phase == .open, let unit = self.popWaiting() {
            guard !ready.peer.send(unit, in: &turn) else { continue }
            return self.wait(unit, isReturning: true)
        }
    }

    /// The sender waits no longer. A message that has begun to leave goes on.
    func cancel(_ outcome: WebSocketOutcome) {
        guard !outcome.hasBegun else { return }
        if let cost = outcome.waitingCost.take() {
            // It makes room at once.
            self.waiting.leave(cost: cost)
            self.waiting.dropStubs(where: Self.isStub)
        }
        outcome.complete(.failure(SocketError(.cancelled, message: "the sending task was cancelled")))
    }

    func ping(
        _ payload: ByteBuffer,
        in turn: inout Turn,
        _ completion: @escaping (Result<Void, SocketError>) -> Void
    ) {
        guard let ready = self.ready, let driver = self.driver else {
            return completion(.failure(self.driver?.notConnected() ?? Driver.closedByUser))
        }
        let endpoint = ready.endpoint
        _ = driver
        ready.peer.ping(payload, in: &turn) { isAnswered in
            completion(
                isAnswered
                    ? .success(())
                    : .failure(
                        SocketError(
                            .connectionLost,
                            message: "the connection to \(endpoint) ended before the ping was answered",
                            endpoint: endpoint,
                            delivery: .sentUnknown
                        )
                    )
            )
        }
    }
}
