// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The subscriptions of a client: makes them on each connection, finds those that a broker refuses, and delivers
/// their messages.
final class STOMPSubscriptions: STOMPBacklog, @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable, or accessed, as the rest, only on the socket's thread.
    let operations: STOMPOperations
    private let connection: STOMPConnection
    private let sender: STOMPSender
    private let reading: STOMPReading
    private var routes: [String: STOMPRoute] = [:]
    /// Whether a connection makes its subscriptions one after the other, because the broker closed the last one before
    /// it had confirmed all.
    private var isCareful = false

    init(_ connection: STOMPConnection, _ sender: STOMPSender, reading: STOMPReading) {
        self.operations = sender.operations
        self.connection = connection
        self.sender = sender
        self.reading = reading
    }

    // MARK: From any thread

    /// Returns whether messages that this connection delivered can still be acknowledged.
    func isCurrent(_ connection: UInt64) -> Bool { self.connection.number == connection }

    /// Whether the messages of a subscription are read fast enough has changed.
    func fullnessChanged(_ id: String) {
        self.operations.port.perform { _ in self.reading.setFull(id, self.routes[id]?.delivery.isFull ?? false) }
    }

    // MARK: Messages

    func deliver(_ message: STOMPMessage, in turn: inout Turn) {
        guard let id = message.delivery?.subscription, let route = self.routes[id], let peer = self.connection.peer
        else { return }
        _ = route.delivery.deliver(message, isLast: false, on: peer.link.loop, in: &turn)
        self.reading.delivered()
    }

    var bufferedBytes: Int { self.routes.values.reduce(0) { $0 + ($1.inbox?.bufferedBytes ?? 0) } }

    // MARK: Subscribing

    /// Makes a subscription: now, or once there is a connection, and again on each that follows.
    func subscribe(
        _ route: STOMPRoute,
        to destination: String,
        headers: STOMPHeaders,
        window: Int,
        in turn: inout Turn
    ) {
        guard !self.operations.isOver else { return route.finish(nil) }
        let isNew = self.connection.decide {
            $0.subscribe(route.id, to: destination, ackMode: route.ackMode, headers: headers, window: window)
        }
        guard isNew else {
            return route.finish(
                SocketError.invalid("there is a subscription with the id \(route.id) already; ids must differ")
            )
        }
        self.routes[route.id] = route
        if self.connection.openPeer != nil { self.subscribe(route.id, in: &turn) }
    }

    /// Sends SUBSCRIBE on the current connection.
    private func subscribe(_ id: String, in turn: inout Turn) {
        guard let route = self.routes[id] else { return }
        let receipt = self.connection.decide { $0.makeReceipt() }
        guard let frame = self.connection.decide({ $0.subscribing(id, receipt: receipt) }) else { return }
        let unit = STOMPUnit(frame, nil, isOfOneConnection: true)
        if let refusal = self.sender.refusal(of: unit) ?? self.modeRefusal(route) { return self.remove(route, refusal) }
        route.send(receipt: receipt)
        _ = self.connection.peer?.send(unit, in: &turn)
    }

    private func modeRefusal(_ route: STOMPRoute) -> SocketError? {
        guard route.ackMode == .clientIndividual, let agreement = self.connection.agreement, agreement.version == .v1_0
        else { return nil }
        return .invalid(
            "the broker speaks STOMP 1.0, which has no ack mode client-individual; use client",
            endpoint: agreement.endpoint
        )
    }

    /// A receipt has arrived: the broker may have dealt with a SUBSCRIBE.
    func confirm(_ receipt: String, in turn: inout Turn) {
        if let route = self.routes.values.first(where: { $0.receipt == receipt }) {
            for waiter in route.confirm() { self.operations.complete(waiter, .success(())) }
        }
        self.subscribeNext(in: &turn)
    }

    /// Calls `completion` once the broker has confirmed the subscription on the current connection.
    func whenSubscribed(_ route: STOMPRoute, in turn: inout Turn, _ completion: @escaping STOMPOperation.Completion) {
        guard !self.operations.isOver else { return completion(.failure(STOMPErrors.released)) }
        guard self.routes[route.id] === route else {
            let error = SocketError(.cancelled, message: "the subscription \(route.id) has ended")
            return completion(.failure(route.error ?? error))
        }
        guard !route.isConfirmed else { return completion(.success(())) }
        let operation = STOMPOperation(.waiting("SUBSCRIBE"), receipt: nil, completion)
        route.wait(operation)
        self.operations.add(operation, in: &turn)
    }

    /// Ends a subscription at the user's request.
    func unsubscribe(
        _ route: STOMPRoute,
        headers: STOMPHeaders,
        in turn: inout Turn,
        _ completion: STOMPOperation.Completion?
    ) {
        guard self.routes[route.id] === route else {
            completion?(.success(()))
            return
        }
        let frame = self.connection.decide { $0.unsubscribe(route.id, headers: headers) }
        let isThere = route.isSent
        self.remove(route, nil)
        guard isThere, let frame, self.connection.openPeer != nil else {
            completion?(.success(()))
            return
        }
        self.sender.send(
            frame,
            awaitsReceipt: completion != nil,
            isOfOneConnection: true,
            in: &turn,
            completion
        )
    }

    /// Removes a subscription, which gets no more messages.
    ///
    /// - Parameter error: The reason; nil: the user has ended it.
    private func remove(_ route: STOMPRoute, _ error: SocketError?) {
        _ = self.connection.decide { $0.unsubscribe(route.id, headers: STOMPHeaders()) }
        self.routes[route.id] = nil
        route.finish(error)
        let cancelled = SocketError(.cancelled, message: "the subscription \(route.id) was ended")
        for waiter in route.takeWaiters() { self.operations.complete(waiter, .failure(error ?? cancelled)) }
        self.reading.setFull(route.id, false)
        if self.isCareful { self.operations.port.perform { self.subscribeNext(in: &$0) } }
    }

    // MARK: Restoring

    /// Sends SUBSCRIBE for the subscriptions that a connection begins with: all of them at once, or each after the
    /// previous one's receipt in order to find out which one the broker refuses.
    func restore(in turn: inout Turn) {
        let routes = self.ids.compactMap { self.routes[$0] }
        for route in routes { route.restore() }
        guard self.isCareful else {
            for route in routes { self.subscribe(route.id, in: &turn) }
            return
        }
        self.subscribeNext(in: &turn)
    }

    /// The ids of all, in the order in which they were made.
    private var ids: [String] { self.connection.decide { $0.subscriptionIDs } }

    /// Continues with the subscriptions that are made one after the other.
    private func subscribeNext(in turn: inout Turn) {
        guard self.isCareful, self.unconfirmed == nil else { return }
        for id in self.ids {
            guard let route = self.routes[id], route.isRestored, !route.isSent else { continue }
            self.subscribe(id, in: &turn)
            if route.isSent { return }
        }
        self.isCareful = false
    }

    /// The first unconfirmed subscription among those restored at the beginning of the current connection: brokers
    /// process these in order.
    private var unconfirmed: STOMPRoute? {
        self.ids.lazy.compactMap { self.routes[$0] }.first { $0.isRestored && $0.receipt != nil }
    }

    // MARK: Refusals

    /// Ends the subscription that the broker's ERROR refers to, if it can be identified.
    ///
    /// - Parameter reason: The error with which it ends.
    func blame(_ error: STOMPServerError, _ reason: SocketError) {
        if let route = self.route(of: error) { self.remove(route, reason) }
    }

    /// The subscription that an ERROR refers to; nil if that is unknown.
    private func route(of error: STOMPServerError) -> STOMPRoute? {
        if let receipt = error.receipt { return self.routes.values.first { $0.receipt == receipt } }
        if let id = error.headers["subscription"] { return self.routes[id] }
        // RabbitMQ names no receipt.
        return self.unconfirmed
    }

    /// The number of connections after which a subscription is held to be refused, of those that make one after the
    /// other.
    private static var refusalsInARow: Int { 2 }

    /// The beginning of RabbitMQ's name in CONNECTED.
    private static var rabbitMQ: String { "RabbitMQ/" }

    /// Handles a close frame of the broker during restoration, without a reason: a subscription that the broker refuses
    /// without saying which would end every connection.
    ///
    /// RabbitMQ closes a WebSocket where it sends ERROR on TCP, for example for a queue that the user may not read.
    /// Other brokers may send no receipts at all, which would look the same.
    func suspect(at endpoint: Endpoint) {
        guard self.connection.agreement?.server?.hasPrefix(Self.rabbitMQ) ?? false, let route = self.unconfirmed
        else { return }
        guard self.isCareful else {
            self.isCareful = true
            return
        }
        let refusals = route.suspect()
        guard refusals >= Self.refusalsInARow else { return }
        let error = SocketError(
            .brokerError,
            message: """
                the broker at \(endpoint) seems to refuse the subscription \(route.id): instead of confirming it, it has \
                closed \(refusals) connections in succession, without a reason
                """,
            endpoint: endpoint,
            delivery: .answered
        )
        self.remove(route, error)
    }

    // MARK: Changes of the connection

    /// The connection has ended: the next one makes the subscriptions again.
    func disconnected() { for route in self.routes.values { route.reset() } }

    /// No connection follows: operations no longer wait for the subscriptions to be made.
    func failWaiters(_ error: SocketError) {
        for waiter in self.routes.values.flatMap(\.waiting) { self.operations.complete(waiter, .failure(error)) }
    }

    func removeAll(_ error: SocketError) {
        for route in self.routes.values { self.remove(route, error) }
    }

    /// Ends everything because the client is released.
    func release() {
        for route in self.routes.values { route.finish(nil) }
        self.routes = [:]
    }
}
