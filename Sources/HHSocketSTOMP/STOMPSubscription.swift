// SPDX-License-Identifier: Apache-2.0
public import HHSocket

/// A subscription: the messages of a destination, in order.
///
/// ```swift
/// for try await message in try client.subscribe(to: "/queue/orders", ack: .clientIndividual) {
///     try await store(message)
///     try await message.ack()
/// }
/// ```
///
/// It is made again on each connection, with its id. It ends by ``unsubscribe(headers:)``, when its last reference is
/// released, and with an error if the broker refuses it or attempts to connect stop. With several readers each message
/// goes to one of them. While 256 messages, or 1 MiB, wait to be read, nothing more is read from the network, unless an
/// operation waits for the broker's answer.
///
/// Messages that were delivered by a connection that is closed, and that would have to be acknowledged, are omitted:
/// the broker delivers them again.
public final class STOMPSubscription: AsyncSequence, Sendable {
    public typealias Failure = SocketError

    let route: STOMPRoute
    private let subscriptions: STOMPSubscriptions
    /// The header `destination`.
    public let destination: String
    /// Whether it lives as long as this object.
    private let endsWhenReleased: Bool

    init(_ route: STOMPRoute, _ subscriptions: STOMPSubscriptions, destination: String, endsWhenReleased: Bool) {
        self.route = route
        self.subscriptions = subscriptions
        self.destination = destination
        self.endsWhenReleased = endsWhenReleased
    }

    deinit {
        guard self.endsWhenReleased else { return }
        let (route, subscriptions) = (self.route, self.subscriptions)
        subscriptions.operations.port.perform {
            subscriptions.unsubscribe(route, headers: STOMPHeaders(), in: &$0, nil)
        }
    }

    /// The header `id`.
    public var id: String { self.route.id }
    /// The mode in which its messages are acknowledged.
    package var ackMode: STOMPAckMode { self.route.ackMode }

    /// Returns once the broker has confirmed the subscription on the current connection; messages that are sent to a
    /// topic from then on arrive.
    ///
    /// - Throws: ``/HHSocket/SocketError``. Codes: `brokerError` if the broker refuses it; `timeout` if nothing is
    ///   confirmed in time; `cancelled` if the subscription has ended.
    public func waitUntilConfirmed() async throws(SocketError) {
        let (route, subscriptions) = (self.route, self.subscriptions)
        try await subscriptions.operations.run { turn, completion in
            subscriptions.whenSubscribed(route, in: &turn, completion)
        }
    }

    /// Ends the subscription, and returns once the broker has confirmed that; immediately without a connection.
    /// Messages that have arrived can still be read, but not acknowledged: RabbitMQ delivers them again when this
    /// connection has ended, ActiveMQ immediately.
    ///
    /// - Parameter headers: Further headers of UNSUBSCRIBE, which RabbitMQ requires for durable subscriptions. None by
    ///   default.
    /// - Throws: ``/HHSocket/SocketError`` with code `connectionLost`, `timeout` or `brokerError`: the subscription has
    ///   ended on this side in any case.
    public func unsubscribe(headers: STOMPHeaders = [:]) async throws(SocketError) {
        let (route, subscriptions) = (self.route, self.subscriptions)
        try await subscriptions.operations.run { turn, completion in
            subscriptions.unsubscribe(route, headers: headers, in: &turn, completion)
        }
    }

    /// Ends the subscription as ``unsubscribe(headers:)`` does, without waiting.
    ///
    /// - Parameter completion: Called once, on the callback queue; nil: there is no completion.
    public func unsubscribe(completion: (@Sendable (Result<Void, SocketError>) -> Void)?) {
        let (route, subscriptions) = (self.route, self.subscriptions)
        subscriptions.operations.run(completion) { turn, completion in
            subscriptions.unsubscribe(route, headers: STOMPHeaders(), in: &turn, completion)
        }
    }

    public struct AsyncIterator: AsyncIteratorProtocol {
        /// Holds the subscription.
        private let subscription: STOMPSubscription
        private let reader: Inbox<STOMPMessage>.Reader?

        init(_ subscription: STOMPSubscription) {
            self.subscription = subscription
            self.reader = subscription.route.inbox?.makeReader()
        }

        public mutating func next() async throws -> STOMPMessage? { try await self.next(isolation: nil) }

        /// Waits for the next message; returns nil if there will be none, because the user has ended the subscription
        /// or the client is released.
        public mutating func next(isolation actor: isolated (any Actor)?) async throws(SocketError) -> STOMPMessage? {
            while let message = await self.reader?.next(isolation: actor) {
                if self.subscription.isCurrent(message) { return message }
            }
            if let error = self.subscription.route.error { throw error }
            return nil
        }
    }

    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(self) }

    /// Whether a message can still be acknowledged, where it has to be.
    private func isCurrent(_ message: STOMPMessage) -> Bool {
        guard let delivery = message.delivery, delivery.ackMode != .auto else { return true }
        return self.subscriptions.isCurrent(delivery.connection)
    }
}
