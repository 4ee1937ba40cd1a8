// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers
import NIOCore

/// The part of a link of messages on its thread: makes connections, of which there is one at a time, queues messages,
/// and reports events.
package final class MessageSession<Dialect: MessageDialect>: LinkMaker, DriverHost, TurnHost, @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable or locked; the rest is accessed only on the socket thread, or set
    // before the first submission.
    package typealias Unit = Dialect.Language.Unit
    package typealias Peer = Dialect.Peer

    /// A connection, from when it is made.
    package final class Connection: MadeLink {
        let peer: Peer
        fileprivate let agreement: OpeningAgreement?
        let endpoint: Endpoint
        /// Outlives this object, which only the session and its driver retain.
        private unowned let session: MessageSession

        fileprivate init(peer: Peer, endpoint: Endpoint, agreement: OpeningAgreement?, session: MessageSession) {
            self.peer = peer
            self.agreement = agreement
            self.endpoint = endpoint
            self.session = session
        }

        package var link: Link<Dialect.Language> { self.peer.link }

        package func shakeHands(attempt: Int, in turn: inout Turn) {
            let id = self.link.id
            self.session.dialect.shakeHands(on: self.peer, attempt: attempt, in: &turn) {
                [weak driver = self.session.driver] refusal, turn in
                driver?.perform(.gateReturned(id, refusal), in: &turn)
            }
        }

        package func isReady(in turn: inout Turn) { self.session.becomeReady(self, in: &turn) }

        package func ended(_ error: SocketError, in turn: inout Turn) {
            self.session.dialect.handshakeEnded(on: self.peer)
        }
    }

    private let configuration: SocketConfiguration
    /// The settings, including the user's choices for the current connection.
    var dialect: Dialect
    package let inbox: Inbox<Dialect.Message>
    package let delegation: Dialect.Delegation
    private let streams = Broadcast<Dialect.Event>()
    private let handler = NIOLockedValueBox<(@Sendable (Dialect.Message) -> Void)?>(nil)
    /// Holds this object until it is invalidated.
    package private(set) weak var driver: Driver?
    package private(set) var ready: Connection?
    /// Whether the server is going away, so that no new messages are sent to it.
    private var isGoingAway = false
    private var waiting: WaitingLine<Unit>
    /// The connection that the user has closed, until it is closed, and the function that makes its event.
    private var parting: (peer: Peer, event: (Peer) -> Dialect.Event)?
    /// The reason why no more connections are made.
    private var closed: SocketError?
    private var isReconnectDeferred = false

    package init(_ dialect: Dialect) {
        self.configuration = dialect.socket
        self.dialect = dialect
        let suspension = ReadingSuspension()
        self.inbox = Inbox(account: nil) { suspension.changed() }
        self.delegation = MessageDelegation {
            Dialect.handOver($2, to: $0, of: $1)
        } fullnessChanged: {
            suspension.changed()
        }
        self.waiting = WaitingLine(
            maximumCount: dialect.maximumWaitingCount,
            maximumBytes: dialect.socket.maximumQueuedBytes
        )
        suspension.attach(self)
    }

    package func attach(to driver: Driver) {
        self.driver = driver
    }

    // MARK: Any thread

    package func setHandler(_ handler: (@Sendable (Dialect.Message) -> Void)?) {
        self.handler.withLockedValue { $0 = handler }
    }

    package func makeEvents() -> AsyncStream<Dialect.Event> { self.streams.makeStream() }

    /// The users may have fallen behind, or caught up.
    package func updateReading() {
        guard let driver = self.driver else { return }
        driver.submit { turn in
            // Read again: since this was submitted it may have changed again.
            let isSuspended = self.inbox.isFull || self.delegation.isFull || self.dialect.isBehind
            driver.perform(.setReading(isSuspended: isSuspended), in: &turn)
        }
    }

    // MARK: Links

    package var linksMayOverlap: Bool { false }
    package var handshake: LinkHandshake? { self.dialect.handshake }

    package func webSocketOffer() throws(SocketError) -> WebSocketOffer? { self.dialect.webSocketOffer() }

    package func makeLink(
        _ id: ConnectionID,
        to endpoint: Endpoint,
        agreement: OpeningAgreement?,
        on loop: SocketLoop,
        for host: any LinkHost
    ) throws(SocketError) -> any MadeLink {
        let peer = self.dialect.makePeer(
            on: MessageConnection(
                id: id,
                endpoint: endpoint,
                agreement: agreement,
                loop: loop,
                host: host,
                delivery: self.delivery,
                delegation: self.delegation
            ) { [weak self] units in
                self?.linkEnded(id, units)
            }
        )
        peer.link.receiver = peer
        return Connection(peer: peer, endpoint: endpoint, agreement: agreement, session: self)
    }

    /// The receiver of the messages of the next connection.
    private var delivery: MessageDelivery<Dialect.Message> {
        if let handler = self.handler.withLockedValue({ $0 }) { return .handler(handler) }
        return self.delegation.delegate == nil ? .inbox(self.inbox) : .delegate(self.delegation)
    }

    private func linkEnded(_ id: ConnectionID, _ units: [Unit]) {
        for unit in units where !unit.isOfOneConnection && unit.outcome?.isOpen ?? true {
            if let closed = self.closed, self.driver?.isClosed ?? true {
                unit.outcome?.complete(.failure(closed))
            } else {
                self.wait(unit, isReturning: true)
            }
        }
        if self.parting?.peer.link.id == id { self.reportPartingEnd() }
    }

    /// Puts a message into the line of those that wait for a connection.
    private func wait(_ unit: Unit, isReturning: Bool = false) {
        let cost = unit.payload.readableBytes
        unit.outcome?.waitingCost = cost
        self.waiting.append(unit, .default, cost: cost, isReturning: isReturning)
    }

    private static func isStub(_ unit: Unit) -> Bool { !(unit.outcome?.isOpen ?? true) }

    private func popWaiting() -> Unit? {
        let unit = self.waiting.popFirst(unless: Self.isStub)
        unit?.outcome?.waitingCost = nil
        return unit
    }

    // MARK: Connections

    package func connectionChanged(_ change: ConnectionChange, in turn: inout Turn) {
        switch change {
        case .goingAway:
            self.isGoingAway = true
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
            self.reportPartingEnd()
            self.failAll(Driver.closedByUser)
            self.dialect.invalidated(in: &turn)
            self.inbox.finish()
            self.streams.finish()
        case .beingMade, .offline:
            break
        }
    }

    private func becomeReady(_ connection: Connection, in turn: inout Turn) {
        self.ready = connection
        self.isGoingAway = false
        self.isReconnectDeferred = false
        self.report(self.dialect.opened(connection.endpoint, connection.agreement))
        self.dialect.restore(on: connection.peer, in: &turn)
        self.sendWaiting(in: &turn)
    }

    private func lose(_ id: ConnectionID, _ error: SocketError) {
        guard let ready = self.ready, ready.peer.link.id == id else { return }
        self.ready = nil
        // The user has closed it.
        if error.code == .cancelled { return self.part(with: ready.peer) }
        self.report(self.dialect.lost(ready.peer, error))
    }

    /// The user has closed a connection: its end is reported when it is closed.
    private func part(with peer: Peer) {
        self.parting = (peer, self.dialect.closedByUser())
        if peer.link.phase == .ended { self.reportPartingEnd() }
    }

    private func reportPartingEnd() {
        guard let (peer, event) = self.parting.take() else { return }
        self.report(event(peer))
    }

    private func happened(_ event: SocketEvent, in turn: inout Turn) {
        self.report(self.dialect.happened(event))
        switch event {
        case .closed:
            // It is replaced by another one, and not closed yet.
            if let ready = self.ready.take() { self.part(with: ready.peer) } else { _ = self.dialect.closedByUser() }
            self.failAll(Driver.closedByUser)
        case .gaveUp(let error):
            self.failAll(error)
        case .willEnterForeground:
            self.driver?.connectAgain(in: &turn)
        default:
            break
        }
    }

    package func report(_ event: Dialect.Event) {
        self.streams.yield(event)
        if let loop = self.driver?.loop { Dialect.notify(self.delegation, of: event, on: loop) }
    }

    private func failAll(_ error: SocketError) {
        var error = error
        // No waiting message was sent, whatever was lost with the connection.
        error.delivery = .notSent
        self.closed = error
        while let unit = self.popWaiting() { unit.outcome?.complete(.failure(error)) }
    }

    private func reconnectSooner(in turn: inout Turn) {
        self.isReconnectDeferred = false
        self.driver?.perform(.reconnectSooner, in: &turn)
    }

    package func turnEnds(in turn: inout Turn) {}
    package func turnEnded() { self.driver?.measure() }

    // MARK: Sending

    package func send(_ unit: Unit, in turn: inout Turn) {
        if var refusal = self.dialect.refusal(of: unit) {
            refusal.endpoint = self.ready?.endpoint
            unit.outcome?.complete(.failure(refusal))
            return
        }
        if let ready = self.ready, !self.isGoingAway, self.waiting.isEmpty, ready.peer.link.phase == .open {
            guard !self.refuses(unit, on: ready.peer) else { return }
            let (cost, link) = (unit.payload.readableBytes, ready.peer.link)
            let limit = self.configuration.maximumQueuedBytes
            guard link.waitingBytes == 0 || cost <= limit - link.waitingBytes, ready.peer.send(unit, in: &turn) else {
                return self.refuse(unit, "too many bytes wait for the server to read (maximumQueuedBytes)")
            }
            return
        }
        guard let driver = self.driver, !driver.isClosed || driver.hasRunOut else {
            unit.outcome?.complete(.failure(self.driver?.notConnected() ?? Driver.closedByUser))
            return
        }
        if self.isReconnectDeferred { self.reconnectSooner(in: &turn) }
        guard self.waiting.hasRoom(for: unit.payload.readableBytes) else {
            return self.refuse(
                unit,
                "too many \(Dialect.names.messages) wait for a connection (\(Dialect.names.limit))"
            )
        }
        self.wait(unit)
        if driver.hasRunOut { driver.connectAgain(in: &turn) }
    }

    /// Whether the message cannot be sent on this connection; if so, its sender is notified.
    private func refuses(_ unit: Unit, on peer: Peer) -> Bool {
        guard var refusal = self.dialect.refusal(of: unit, on: peer) else { return false }
        refusal.endpoint = self.ready?.endpoint
        unit.outcome?.complete(.failure(refusal))
        return true
    }

    /// Refuses a message because there is no room.
    private func refuse(_ unit: Unit, _ message: String) {
        unit.outcome?.complete(.failure(SocketError(.queueFull, message: message, endpoint: self.ready?.endpoint)))
    }

    private func sendWaiting(in turn: inout Turn) {
        guard let ready = self.ready, !self.isGoingAway else { return }
        // A closing connection accepts nothing; waiting messages are sent after the next opening.
        while ready.peer.link.phase == .open, let unit = self.popWaiting() {
            guard !self.refuses(unit, on: ready.peer), !ready.peer.send(unit, in: &turn) else { continue }
            return self.wait(unit, isReturning: true)
        }
    }

    /// The sender stops waiting. A message whose sending has begun continues.
    package func cancel(
        _ outcome: MessageOutcome,
        with error: SocketError = SocketError(.cancelled, message: "the sending task was cancelled")
    ) {
        guard !outcome.hasBegun else { return }
        if let cost = outcome.waitingCost.take() {
            // It makes room at once.
            self.waiting.makeStub(cost: cost, where: Self.isStub)
        }
        outcome.complete(.failure(error))
    }
}

/// Notifies a session, once it exists, that the users have fallen behind or caught up.
private final class ReadingSuspension: Sendable {
    private let update = NIOLockedValueBox<(@Sendable () -> Void)?>(nil)

    func attach(_ session: MessageSession<some MessageDialect>) {
        self.update.withLockedValue { $0 = { [weak session] in session?.updateReading() } }
    }

    func changed() { self.update.withLockedValue { $0 }?() }
}
