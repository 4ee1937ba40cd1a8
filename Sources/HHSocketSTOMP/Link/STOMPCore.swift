package import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// A STOMP client on its socket's thread: performs what ``STOMPMachine`` decides on the connections that a
/// ``HHSocket/MessageSession`` makes.
///
/// This file has frames that come and the ends of connections; `+Sending` has what the user sends, `+Subscribing`
/// subscriptions.
package final class STOMPCore: @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable, and so are the weak references, which are set before the first
    // submission; the rest is touched on the socket's thread alone.
    package typealias Session = MessageSession<STOMPDialect>

    let configuration: STOMPClient.Configuration
    private(set) weak var session: Session?
    private(set) weak var driver: Driver?
    var machine: STOMPMachine
    /// The connection on which CONNECT was sent last.
    private var connecting: STOMPPeer?
    /// The accepted connection.
    private(set) var peer: STOMPPeer?
    var operations = STOMPOperations()
    var routes: [String: STOMPRoute] = [:]
    /// The task that has made the present submission, if it may be cancelled.
    var token: STOMPToken?
    /// The number of the accepted connection, for other threads; 0 where there is none.
    private let current = NIOLockedValueBox<UInt64>(0)
    /// Those who wait for a connection.
    var connectionWaiters: [STOMPOperation] = []
    /// Whether the broker has answered the latest DISCONNECT.
    private let hasParted = NIOLockedValueBox(false)
    /// Whether the client has been released.
    private(set) var isOver = false
    /// Those who wait until no operation waits for the broker.
    var idleWaiters: [(inout Turn) -> Void] = []
    /// The subscriptions whose messages are not read fast enough.
    private var fullRoutes: Set<String> = []
    /// Whether reading was last said to be unwanted.
    private var isReadingUnwanted = false
    private var timer: SocketLoop.TimerID?

    init(_ configuration: STOMPClient.Configuration) {
        self.configuration = configuration
        var settings = STOMPMachine.Settings()
        settings.versions = configuration.versions.sorted()
        settings.heartbeats = configuration.heartbeats
        settings.host = configuration.host
        settings.headers = configuration.connectHeaders
        self.machine = STOMPMachine(settings)
    }

    func attach(_ session: Session, _ driver: Driver) {
        self.session = session
        self.driver = driver
    }

    static func lost(_ why: String, _ delivery: SocketError.Delivery = .notSent) -> SocketError {
        SocketError(.connectionLost, message: why, delivery: delivery)
    }

    static let released = SocketError(.cancelled, message: "the client was released")

    // MARK: From any thread

    /// Runs `body` on the socket's thread: at once where a handler runs there.
    ///
    /// - Returns: False if nothing runs there any more.
    @discardableResult
    func perform(_ body: @escaping @Sendable (inout Turn) -> Void) -> Bool {
        guard let driver = self.driver else { return false }
        let isDone = driver.loop.ifHandlersRun { turn in
            body(&turn)
            return true
        }
        return isDone || driver.submit(.closure(body))
    }

    /// Whether the broker has confirmed the latest DISCONNECT.
    var hasConfirmedDisconnect: Bool { self.hasParted.withLockedValue { $0 } }

    /// Whether what this connection has delivered can still be acknowledged.
    func isCurrent(_ connection: UInt64) -> Bool { self.connectionNumber == connection }

    /// The number of the accepted connection; 0 where there is none. Any thread.
    var connectionNumber: UInt64 { self.current.withLockedValue { $0 } }

    // MARK: Connecting

    /// Sends CONNECT on a new connection.
    func connect(
        _ peer: STOMPPeer,
        in turn: inout Turn,
        _ completion: @escaping (GateRefusal?, inout Turn) -> Void
    ) {
        peer.connectAnswered = completion
        guard let credentials = self.configuration.credentials else { return self.connect(peer, nil, in: &turn) }
        let loop = peer.link.loop
        let place = NIOLoopBound(peer, eventLoop: loop.eventLoop)
        Task {
            let result: Result<STOMPCredentials?, any Error>
            do { result = .success(try await credentials()) } catch { result = .failure(error) }
            loop.submit(
                .closure { turn in
                    switch result {
                    case .success(let credentials): self.connect(place.value, credentials, in: &turn)
                    case .failure(let error): self.refuse(place.value, Self.noCredentials(error), .trySameServer, &turn)
                    }
                }
            )
        }
    }

    private static func noCredentials(_ error: any Error) -> SocketError {
        SocketError(
            .handshakeRefused,
            message: "no credentials for the broker (STOMPClient.Configuration.credentials): \(error)",
            underlying: error
        )
    }

    private func connect(_ peer: STOMPPeer, _ credentials: STOMPCredentials?, in turn: inout Turn) {
        guard peer.link.phase == .open, peer.connectAnswered != nil else { return }
        self.connecting = peer
        let frame = self.machine.begin(peer.endpoint, credentials)
        if let refusal = STOMPEncoder.refusal(of: frame, version: nil) {
            return self.refuse(peer, SocketError(.invalidArgument, message: "\(refusal)"), .stop, &turn)
        }
        _ = peer.send(STOMPUnit(frame, nil, isOfOneConnection: true), in: &turn)
    }

    private func refuse(
        _ peer: STOMPPeer,
        _ error: SocketError,
        _ remedy: HandshakeRefusal.Remedy,
        _ turn: inout Turn
    ) {
        var error = error
        error.endpoint = peer.endpoint
        peer.connectAnswered.take()?(GateRefusal(error: error, remedy: remedy), &turn)
    }

    /// Heart-beats as they were agreed on; nil: none.
    func beats(now: NIODeadline) -> Beats? {
        guard let agreed = self.machine.agreement?.heartbeats, agreed != .off else { return nil }
        // Ours come within the interval though timers are late; theirs may be late by as much again.
        return Beats(
            ourSilence: agreed.send > .zero ? TimeAmount(clamping: agreed.send / 10 * 9) : nil,
            theirSilence: agreed.receive > .zero ? TimeAmount(clamping: agreed.receive * 2) : nil,
            now: now
        )
    }

    // MARK: Frames

    func received(_ frame: STOMPFrame, from peer: STOMPPeer, in turn: inout Turn) throws(LinkError) {
        // One that was left before it was accepted has nothing to say.
        guard peer === self.peer || (peer === self.connecting && peer.link.phase == .open) else { return }
        let news: STOMPMachine.News
        do throws(STOMPMachine.Failure) {
            news = try self.machine.received(frame)
        } catch {
            switch error {
            case .violation(let text):
                throw LinkError(text)
            case .error(let error, isAnswerToConnect: true):
                return self.refuse(peer, self.refusal(error, peer), .stop, &turn)
            case .error(let error, isAnswerToConnect: false):
                self.blame(error, peer)
                throw LinkError("ERROR: \(error)", underlying: error, reason: .done)
            }
        }
        switch news {
        case .connected:
            self.connecting = nil
            self.peer = peer
            self.current.withLockedValue { $0 = self.machine.connection }
            self.hasParted.withLockedValue { $0 = false }
            peer.connectAnswered.take()?(nil, &turn)
        case .message(let delivery):
            // The broker takes back what is not acknowledged before DISCONNECT.
            guard delivery.ackMode == .auto || peer.link.phase == .open else { return }
            self.deliver(STOMPMessage(frame, delivery, self), in: &turn)
        case .unclaimed:
            self.session?.report(.unclaimed(STOMPMessage(frame, nil, self)))
        case .receipt(let receipt):
            self.confirm(receipt, peer, in: &turn)
        }
    }

    private func confirm(_ receipt: String, _ peer: STOMPPeer, in turn: inout Turn) {
        if receipt == peer.farewell {
            self.hasParted.withLockedValue { $0 = true }
            peer.link.peerAnsweredClose(in: &turn)
        } else if let operation = self.operations.awaiting(receipt) {
            self.complete(operation, .success(()))
        } else {
            self.confirmSubscription(receipt)
        }
    }

    // MARK: Ends

    private func refusal(_ error: STOMPServerError, _ peer: STOMPPeer) -> SocketError {
        SocketError(
            .handshakeRefused,
            message: "the broker at \(peer.endpoint) refused CONNECT: \(error)",
            underlying: error,
            endpoint: peer.endpoint,
            delivery: .answered
        )
    }

    private static func error(_ error: STOMPServerError, _ peer: STOMPPeer) -> SocketError {
        SocketError(
            .brokerError,
            message: "the broker at \(peer.endpoint) answered with ERROR: \(error)",
            underlying: error,
            endpoint: peer.endpoint,
            delivery: .answered
        )
    }

    /// The end of a connection by an ERROR.
    func end(by error: STOMPServerError, of peer: STOMPPeer) -> LinkEnd {
        var lost = Self.error(error, peer)
        lost.delivery = .sentUnknown
        let next: EndVerdict.Next = self.configuration.reconnects(error) ? .afterBackoff : .never
        return LinkEnd(.said(lost), EndVerdict(next, isServersFault: false))
    }

    /// Ends what the broker's ERROR is about, as far as that can be told: on the next connection it would be the end
    /// again.
    private func blame(_ error: STOMPServerError, _ peer: STOMPPeer) {
        peer.serverError = error
        if let receipt = error.receipt, let operation = self.operations.awaiting(receipt) {
            self.complete(operation, .failure(Self.error(error, peer)))
        } else if let route = self.route(of: error) {
            self.remove(route, Self.error(error, peer))
        }
    }

    /// The error of an operation that the broker had not confirmed when the connection ended. An ERROR before may be
    /// about it, or not: RabbitMQ does not say.
    private static func unconfirmed(_ peer: STOMPPeer) -> SocketError {
        let why = peer.serverError.map { "was ended by ERROR (\($0))" } ?? "was lost"
        return SocketError(
            .connectionLost,
            message: "the connection to \(peer.endpoint) \(why) before the broker confirmed it",
            underlying: peer.serverError,
            endpoint: peer.endpoint,
            delivery: .sentUnknown
        )
    }

    /// The subscription that an ERROR is about; nil where that is not known.
    private func route(of error: STOMPServerError) -> STOMPRoute? {
        if let receipt = error.receipt { return self.routes.values.first { $0.receipt == receipt } }
        if let id = error.headers["subscription"] { return self.routes[id] }
        // RabbitMQ names no receipt. What a connection begins with it deals with in order.
        return self.machine.subscriptionIDs.lazy.compactMap { self.routes[$0] }
            .first { $0.isRestored && $0.receipt != nil }
    }

    func linkEnded(_ peer: STOMPPeer, in turn: inout Turn) {
        peer.connectAnswered = nil
        if self.connecting === peer { self.connecting = nil }
        guard self.peer === peer else { return }
        self.peer = nil
        self.current.withLockedValue { $0 = 0 }
        self.machine.end()
        // Before another connection is made.
        self.notifyIdle(in: &turn)
        let error = Self.unconfirmed(peer)
        for operation in self.operations.unconfirmed { self.complete(operation, .failure(error)) }
        for route in self.routes.values {
            route.receipt = nil
            route.isRestored = false
            route.confirmation = .awaited
        }
        self.reconsiderReading()
    }

    /// The connection closes by our choice, and has ended.
    ///
    /// RabbitMQ does not answer DISCONNECT on a WebSocket, and closes that in order.
    func partingEnded(_ peer: STOMPPeer, by end: LinkEnd) {
        guard case .said(let error) = end.cause, let closure = error.underlying as? WebSocketClosure,
            closure.code == Self.normalClosure
        else { return }
        self.hasParted.withLockedValue { $0 = true }
    }

    /// The close code of a WebSocket for a normal end.
    private static let normalClosure: UInt16 = 1_000

    /// Attempts have stopped. What waited for a connection fails.
    func gaveUp(_ error: SocketError) {
        for waiter in self.connectionWaiters { self.complete(waiter, .failure(error)) }
        for waiter in self.routes.values.flatMap(\.waiters) { self.complete(waiter, .failure(error)) }
        // Where it goes on by itself, subscriptions wait for that.
        guard let driver = self.driver, !driver.hasRunOut else { return }
        for route in self.routes.values { self.remove(route, error) }
    }

    /// The user closes: nothing waits for a connection any more.
    func closedByUser() {
        let error = SocketError(.notConnected, message: "the client was disconnected")
        for waiter in self.connectionWaiters { self.complete(waiter, .failure(error)) }
    }

    /// The client is released: nothing comes any more.
    func release(in turn: inout Turn) {
        self.isOver = true
        self.notifyIdle(in: &turn)
        for operation in self.operations.all { self.end(operation, Self.released.code, Self.released.message) }
        for route in self.routes.values { route.finish(nil) }
        self.routes = [:]
        if let timer = self.timer { self.driver?.loop.removeTimer(timer) }
        self.timer = nil
    }

    // MARK: Reading

    /// Whether nothing more should be read for now. While the user waits for an answer of the broker's, that may stand
    /// behind messages: they are read then, up to a limit.
    var isBehind: Bool {
        guard !self.fullRoutes.isEmpty || self.machine.isOverdrawn else { return false }
        guard self.operations.count > 0 else { return true }
        let bytes = self.routes.values.reduce(0) { $0 + ($1.inbox?.bufferedBytes ?? 0) }
        return bytes >= self.configuration.maximumBufferedBytes
    }

    /// Has the session ask again whether to read, where that has changed.
    func reconsiderReading() {
        let isUnwanted = self.isBehind
        guard isUnwanted != self.isReadingUnwanted else { return }
        self.isReadingUnwanted = isUnwanted
        self.session?.updateReading()
    }

    /// Whether the messages of a subscription are read fast enough has changed. Any thread.
    func fullnessChanged(_ id: String) {
        self.perform { _ in
            if let route = self.routes[id], route.delivery.isFull {
                self.fullRoutes.insert(id)
            } else {
                self.fullRoutes.remove(id)
            }
            self.reconsiderReading()
        }
    }

    func isNoLongerFull(_ id: String) {
        self.fullRoutes.remove(id)
        self.reconsiderReading()
    }

    private func deliver(_ message: STOMPMessage, in turn: inout Turn) {
        guard let id = message.delivery?.subscription, let route = self.routes[id], let peer = self.peer else { return }
        _ = route.delivery.deliver(message, isLast: false, on: peer.link.loop, in: &turn)
        // While it is read on for the sake of an answer, that has a limit.
        if !self.fullRoutes.isEmpty || self.machine.isOverdrawn { self.reconsiderReading() }
    }

    // MARK: Time

    /// Ends an operation.
    func complete(_ operation: STOMPOperation, _ result: Result<Void, SocketError>) {
        self.operations.complete(operation, result)
        guard self.operations.count == 0 else { return }
        self.reconsiderReading()
        if !self.idleWaiters.isEmpty { self.perform { self.notifyIdle(in: &$0) } }
    }

    /// Gives an operation the time that operations have.
    func add(_ operation: STOMPOperation, in turn: inout Turn) {
        let deadline = turn.now.advanced(clamping: TimeAmount(clamping: self.configuration.timeout))
        self.operations.add(operation, until: deadline)
        self.token?.operation = operation
        if self.operations.count == 1 { self.reconsiderReading() }
        self.armTimer()
    }

    private func armTimer() {
        guard self.timer == nil, let deadline = self.operations.nextDeadline, let loop = self.driver?.loop else {
            return
        }
        self.timer = loop.setTimer(deadline) { [weak self] turn in
            guard let self else { return }
            self.timer = nil
            for operation in self.operations.late(now: turn.now) { self.timeOut(operation) }
            self.armTimer()
        }
    }

    /// The user waits no longer.
    func cancel(_ operation: STOMPOperation) {
        self.end(operation, .cancelled, "\(operation.name) was cancelled")
    }

    /// Ends an operation before its time. A frame that has not begun to leave does not leave.
    private func end(_ operation: STOMPOperation, _ code: SocketError.Code, _ message: String) {
        let hasBegun = operation.outcome?.hasBegun ?? false
        let error = SocketError(
            code,
            message: message,
            endpoint: self.peer?.endpoint,
            delivery: hasBegun ? .sentUnknown : .notSent
        )
        if !hasBegun, let outcome = operation.outcome { self.session?.cancel(outcome, with: error) }
        self.complete(operation, .failure(error))
    }

    private func timeOut(_ operation: STOMPOperation) {
        let hasBegun = operation.outcome?.hasBegun ?? false
        let why =
            hasBegun
            ? operation.receipt == nil ? "it could not be sent" : "the broker did not confirm it"
            : "there was no connection by which it could leave"
        self.end(
            operation,
            .timeout,
            "\(operation.name) failed: \(why) within \(self.configuration.timeout) (STOMPClient.Configuration.timeout)"
        )
    }
}
