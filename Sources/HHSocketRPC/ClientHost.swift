// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The owners of a client's state, and their order for each change of a connection. On the socket thread.
///
/// Released with the client; tasks retain only the ``CallEngine``.
final class ClientHost: @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable, or accessed only on the socket thread like the followers.
    let configuration: ClientConfiguration
    let loop: SocketLoop
    let driver: any ConnectionDriver
    let engine: CallEngine
    let streams: StreamCarrier
    let links: ClientLinks
    let pushes: PushCenter
    let reporter: CallReporter
    let events = EventStreams()
    private let bodies: BodyWork
    private let audience: any ClientAudience
    private var followers = ConnectionFollowers()

    /// - Parameters:
    ///   - driver: Makes connections, and must notify this object of their changes.
    ///   - audience: Receives events and pushes that belong to no call.
    init(
        configuration: ClientConfiguration,
        rules: FrameRules,
        driver: any ConnectionDriver,
        loop: SocketLoop,
        audience: any ClientAudience
    ) {
        self.configuration = configuration
        self.loop = loop
        self.driver = driver
        self.audience = audience
        let reporter = CallReporter(configuration)
        let bodies = BodyWork(loop, maximumPayloadLength: configuration.socket.maximumPayloadLength)
        let links = ClientLinks(driver, reporter: reporter)
        let sealer = RequestSealer(configuration, rules, tracer: reporter.tracer)
        let timeouts = CallTimeouts(configuration, driver: driver, links: links)
        let requests = RequestCarrier(
            rules,
            sealer,
            driver: driver,
            links: links,
            bodies: bodies,
            timeouts: timeouts
        )
        self.streams = StreamCarrier(
            configuration,
            rules,
            sealer: sealer,
            driver: driver,
            links: links,
            bodies: bodies,
            timeouts: timeouts,
            reporter: reporter,
            loop: loop
        )
        self.engine = CallEngine(
            configuration,
            rules,
            traits: CallTraits(
                configuration,
                sealer: sealer,
                reporter: reporter,
                callbackQueue: loop.callbackQueue
            ),
            driver: driver,
            links: links,
            carriers: (requests, self.streams),
            reporter: reporter,
            loop: loop
        )
        self.pushes = PushCenter(
            configuration.socket,
            driver: driver,
            bodies: bodies,
            reporter: reporter,
            audience: audience,
            loop: loop
        )
        self.links = links
        self.bodies = bodies
        self.reporter = reporter
        self.streams.attach(self.engine)
    }

    // MARK: Followers

    /// Passes the events of the connection to this object too.
    func add(_ follower: any ConnectionFollower) { self.followers.add(follower) }

    func remove(_ follower: any ConnectionFollower) { self.followers.remove(follower) }
}

extension ClientHost: TurnHost {
    func turnEnds(in turn: inout Turn) { self.engine.turnEnds(in: &turn) }

    func turnEnded() { self.engine.turnEnded() }
}

extension ClientHost: DriverHost, FrameHost {
    func connectionChanged(_ change: ConnectionChange, in turn: inout Turn) {
        switch change {
        case .beingMade:
            self.links.reconnectBegins()
            self.engine.linkIsConnecting()
        case .goingAway(let id):
            self.connectionGoesAway(id, in: &turn)
        case .reconnectDeferred:
            self.links.reconnectIsDeferred(isNeeded: self.engine.hot.needsConnection, in: &turn)
        case .draining(let id):
            if let connection = self.links.draining(id) { self.streams.drains(connection) }
            self.engine.linkDrains(id, in: &turn)
        case .lost(let id, let error):
            self.connectionWasLost(id, error, in: &turn)
        case .offline(let error):
            self.engine.linkIsOffline(error, isForGood: false, in: &turn)
        case .happened(let event):
            self.happened(event, in: &turn)
        case .invalidated:
            self.invalidated(in: &turn)
        }
    }

    func connectionIsReady(_ pending: PendingConnection, in turn: inout Turn) {
        let origin = SocketResponse.Origin(endpoint: pending.endpoint, agreement: pending.agreement)
        let connection = ClientConnection(
            link: pending.link,
            origin: origin,
            streams: self.streams.shell(on: pending.link, pending.agreement),
            engine: self.engine,
            links: self.links,
            pushes: self.pushes,
            bodies: self.bodies,
            reporter: self.reporter
        )
        self.links.adopt(connection, predecessorDrains: self.engine.hot.hasPredecessor)
        self.engine.adopt(connection)
        pending.link.receiver = connection
        let unread = pending.finish(in: &turn)
        self.engine.linkIsReady(connection.id, in: &turn)
        connection.receivedFrames(unread, in: &turn)
    }

    func receivedGoAway(_ frame: Frame, on id: ConnectionID, in turn: inout Turn) {
        self.links.receivedGoAway(frame, on: id, in: &turn)
    }

    private func connectionGoesAway(_ id: ConnectionID, in turn: inout Turn) {
        guard let connection = self.links.current, connection.id == id else { return }
        self.streams.drains(connection)
        self.engine.linkGoesAway(in: &turn)
        self.streams.endLine(in: &turn)
    }

    private func connectionWasLost(_ id: ConnectionID, _ error: SocketError, in turn: inout Turn) {
        let connection = self.links.connection(id)
        self.engine.linkIsLost(id)
        // Complete items are delivered before the error.
        connection?.streams?.lose(in: &turn)
        self.engine.linkWasLost(id, error, in: &turn)
        connection?.link.releaseReceiver(in: &turn)
        if connection?.streams != nil, id == self.links.current?.id { self.streams.endLine(in: &turn) }
        self.engine.armTimer()
        self.links.forget(id)
    }

    private func happened(_ event: SocketEvent, in turn: inout Turn) {
        switch event {
        // No reconnect follows, so no call need wait for one.
        case .closed: self.engine.linkIsOffline(Driver.closedByUser, isForGood: true, in: &turn)
        case .gaveUp(let error): self.engine.linkIsOffline(error, isForGood: true, in: &turn)
        default: break
        }
        self.events.yield(event)
        self.followers.happened(event)
        if let callback = self.audience.callback(for: event) { turn.callBack(callback) }
    }

    /// Completes all calls and ends all subscriptions, after the driver was invalidated.
    private func invalidated(in turn: inout Turn) {
        self.engine.invalidate(in: &turn)
        self.links.invalidate()
        self.engine.adopt(nil)
        self.streams.invalidate()
        self.followers.clientIsGone()
        self.pushes.finish()
        self.events.finish()
    }
}
