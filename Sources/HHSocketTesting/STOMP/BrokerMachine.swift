// SPDX-License-Identifier: Apache-2.0
import DequeModule
package import HHSocketSTOMP
package import NIOCore

/// The rules of a STOMP broker: the actions that each received frame causes. It does what the specification requires,
/// and demands the same of clients.
///
/// Destinations are `/queue/…`, whose messages are each kept for one of the consumers, and `/topic/…`, whose messages
/// go to all current subscribers.
package struct BrokerMachine: Sendable {
    /// The actions to perform, in this order.
    package enum Action: Hashable, Sendable {
        case send(STOMPFrame, to: Int)
        /// A connection is read and written in this version from now on.
        case agree(STOMPVersion, on: Int)
        /// Heart-beats were agreed on: the intervals, in milliseconds, at which the broker sends and expects them; nil
        /// for never.
        case beat(on: Int, sends: Int?, expects: Int?)
        /// Close the connection after everything that was sent.
        case close(Int)
    }

    /// A fault of a client, which is answered with ERROR.
    struct Fault: Error {
        var message: String
        var details: String
        var headers: STOMPHeaders

        init(_ message: String, _ details: String, headers: STOMPHeaders = [:]) {
            self.message = message
            self.details = details
            self.headers = headers
        }
    }

    /// The messages of a queue, or those of a topic that wait for one subscription.
    enum MailboxID: Hashable {
        case queue(String)
        /// The mailbox of the subscription with this number.
        case subscription(Int)
    }

    struct Message {
        var number: Int
        var destination: String
        var headers: STOMPHeaders
        var body: ByteBuffer
        var isRedelivered = false
    }

    struct Mailbox {
        var messages: Deque<Message> = []
        /// The consumers that take messages in turn, the next one first.
        var consumers: Deque<Consumer> = []
    }

    struct Consumer: Hashable {
        var connection: Int
        /// The number of the subscription.
        var subscription: Int
    }

    /// A message that has been delivered and not been acknowledged.
    struct Delivery {
        var number: Int
        var message: Message
        var subscription: Int
        /// Whether an open transaction acknowledges it.
        var isClaimed = false
    }

    enum AckMode: String {
        case auto
        case client
        case clientIndividual = "client-individual"
    }

    struct Subscription {
        /// A number that is unique among those of all connections.
        var number: Int
        var id: String?
        var destination: String
        var mode: AckMode
        /// The largest number of messages that are not acknowledged; nil for none.
        var prefetch: Int?
        var unacknowledged = 0
        var mailbox: MailboxID
    }

    /// A part of a transaction, for when it is committed.
    enum Operation {
        case send(Message)
        case settle(deliveries: [Int], isAck: Bool)
    }

    struct Peer {
        /// Nil until the client has connected.
        var version: STOMPVersion?
        var subscriptions: [Subscription] = []
        var deliveries = BrokerDeliveries()
        var transactions: [String: [Operation]] = [:]
    }

    let configuration: MockBroker.Configuration
    /// The connections that may send; those that have failed or disconnected are removed.
    var peers: [Int: Peer] = [:]
    var mailboxes: [MailboxID: Mailbox] = [:]
    var actions: [Action] = []
    private var lastNumber = 0

    package init(_ configuration: MockBroker.Configuration = .init()) {
        self.configuration = configuration
    }

    mutating func nextNumber() -> Int {
        self.lastNumber += 1
        return self.lastNumber
    }

    private mutating func takeActions() -> [Action] {
        defer { self.actions = [] }
        return self.actions
    }

    // MARK: Events

    /// A connection has been accepted.
    package mutating func opened(_ connection: Int) {
        self.peers[connection] = Peer()
    }

    /// Handles a received frame.
    ///
    /// - Parameter confirms: Whether its receipt is sent; true by default.
    package mutating func receivedFrame(_ frame: STOMPFrame, on connection: Int, confirms: Bool = true) -> [Action] {
        guard self.peers[connection] != nil else { return [] }
        let receipt = frame.command == .connect || frame.command == .stomp ? nil : frame.headers["receipt"]
        do throws(Fault) {
            try self.handle(frame, on: connection)
            if let receipt, confirms {
                self.actions.append(.send(STOMPFrame(.receipt, ["receipt-id": receipt]), to: connection))
            }
            if frame.command == .disconnect { self.end(connection) }
        } catch {
            self.fail(connection, error, receipt: receipt)
        }
        return self.takeActions()
    }

    /// Handles bytes that are not a frame.
    package mutating func receivedViolation(_ violation: STOMPViolation, on connection: Int) -> [Action] {
        guard self.peers[connection] != nil else { return [] }
        self.fail(connection, Fault("malformed frame", violation.description), receipt: nil, closes: true)
        return self.takeActions()
    }

    /// Handles missing heart-beats.
    package mutating func missedHeartBeats(of connection: Int) -> [Action] {
        guard self.peers[connection] != nil else { return [] }
        self.end(connection)
        return self.takeActions()
    }

    /// A connection has ended: its transactions are aborted, and its messages wait for others.
    package mutating func ended(_ connection: Int) -> [Action] {
        self.removePeer(connection)
        return self.takeActions()
    }

    /// The test sends a message.
    ///
    /// - Returns: Nil for a destination that is none.
    package mutating func publish(
        _ body: ByteBuffer,
        to destination: String,
        headers: STOMPHeaders = [:]
    ) -> [Action]? {
        guard Self.isDestination(destination) else { return nil }
        self.route(self.message(to: destination, headers: headers, body: body))
        return self.takeActions()
    }

    // MARK: What there is

    /// The messages of a queue that wait for a consumer.
    package func messages(in destination: String) -> [STOMPFrame] {
        let messages = self.mailboxes[.queue(destination)]?.messages ?? []
        return messages.map { STOMPFrame(.message, $0.fields, body: $0.body) }
    }

    /// The subscriptions of a connection, in their order.
    package func subscriptions(of connection: Int) -> [MockBroker.Subscription] {
        let subscriptions = self.peers[connection]?.subscriptions ?? []
        return subscriptions.map { subscription in
            MockBroker.Subscription(
                id: subscription.id,
                destination: subscription.destination,
                ack: subscription.mode.rawValue,
                prefetchCount: subscription.prefetch,
                unacknowledged: subscription.unacknowledged
            )
        }
    }

    /// The names of the transactions of a connection that are open, in alphabetical order.
    package func transactions(of connection: Int) -> [String] {
        self.peers[connection].map { $0.transactions.keys.sorted() } ?? []
    }

    /// Whether a connection has agreed on a version, and neither failed nor ended.
    package func isConnected(_ connection: Int) -> Bool { self.peers[connection]?.version != nil }

    // MARK: Ends

    /// Answers with ERROR, and closes.
    private mutating func fail(_ connection: Int, _ fault: Fault, receipt: String?, closes: Bool = false) {
        let hasConnected = self.isConnected(connection)
        var headers = fault.headers
        headers["message"] = fault.message
        headers["content-type"] = "text/plain"
        if let receipt { headers["receipt-id"] = receipt }
        self.actions.append(.send(STOMPFrame(.error, headers, body: ByteBuffer(string: fault.details)), to: connection))
        if closes || !hasConnected || self.configuration.closesAfterErrors { self.end(connection) }
    }

    private mutating func end(_ connection: Int) {
        self.actions.append(.close(connection))
        self.removePeer(connection)
    }

    private mutating func removePeer(_ connection: Int) {
        guard var peer = self.peers.removeValue(forKey: connection) else { return }
        for subscription in peer.subscriptions {
            self.removeConsumer(Consumer(connection: connection, subscription: subscription.number), subscription)
        }
        self.requeue(peer.deliveries.removeAll(), of: peer.subscriptions)
    }
}

extension BrokerMachine.Message {
    /// The headers that do not depend on the receiver.
    var fields: STOMPHeaders {
        var headers: STOMPHeaders = ["destination": self.destination, "message-id": "message-\(self.number)"]
        if self.isRedelivered { headers.add(name: "redelivered", value: "true") }
        for (name, value) in self.headers { headers.add(name: name, value: value) }
        return headers
    }
}
