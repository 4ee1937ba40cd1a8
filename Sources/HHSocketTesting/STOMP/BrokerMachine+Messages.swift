// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocketSTOMP

/// The processing of messages: queues, deliveries, acknowledgements, transactions.
extension BrokerMachine {
    /// Puts a message where it belongs: into a queue, or before each subscription of a topic.
    mutating func route(_ message: Message) {
        if message.destination.hasPrefix("/queue/") {
            self.mailboxes[.queue(message.destination), default: Mailbox()].messages.append(message)
            self.dispatch(.queue(message.destination))
            return
        }
        for connection in self.peers.keys.sorted() {
            for subscription in self.peers[connection]?.subscriptions ?? [] {
                guard subscription.destination == message.destination else { continue }
                self.mailboxes[subscription.mailbox]?.messages.append(message)
                self.dispatch(subscription.mailbox)
            }
        }
    }

    /// Delivers messages while there is a consumer that accepts one.
    mutating func dispatch(_ id: MailboxID) {
        while let index = self.nextConsumer(id), let consumer = self.mailboxes[id]?.consumers[index],
            let message = self.mailboxes[id]?.messages.popFirst()
        {
            // A consumer that received one is the last from now on.
            self.mailboxes[id]?.consumers.remove(at: index)
            self.mailboxes[id]?.consumers.append(consumer)
            self.deliver(message, to: consumer)
        }
    }

    /// The index of the consumer that takes the next message; nil without a message or a consumer with room.
    private func nextConsumer(_ id: MailboxID) -> Int? {
        guard let mailbox = self.mailboxes[id], !mailbox.messages.isEmpty else { return nil }
        return mailbox.consumers.firstIndex { self.hasRoom($0) }
    }

    private func index(of consumer: Consumer) -> Int? {
        self.peers[consumer.connection]?.subscriptions.firstIndex { $0.number == consumer.subscription }
    }

    private func hasRoom(_ consumer: Consumer) -> Bool {
        guard let index = self.index(of: consumer),
            let subscription = self.peers[consumer.connection]?.subscriptions[index]
        else { return false }
        return subscription.prefetch.map { subscription.unacknowledged < $0 } ?? true
    }

    private mutating func deliver(_ message: Message, to consumer: Consumer) {
        let connection = consumer.connection
        guard let index = self.index(of: consumer), let subscription = self.peers[connection]?.subscriptions[index]
        else { return }
        let number = self.nextNumber()
        var headers = message.fields
        if let id = subscription.id { headers.add(name: "subscription", value: id) }
        if subscription.mode != .auto {
            if self.peers[connection]?.version == .v1_2 { headers.add(name: "ack", value: "ack-\(number)") }
            self.peers[connection]?.subscriptions[index].unacknowledged += 1
            self.peers[connection]?.deliveries.append(
                Delivery(number: number, message: message, subscription: subscription.number)
            )
        }
        self.actions.append(.send(STOMPFrame(.message, headers, body: message.body), to: connection))
    }

    mutating func removeConsumer(_ consumer: Consumer, _ subscription: Subscription) {
        switch subscription.mailbox {
        case .queue: self.mailboxes[subscription.mailbox]?.consumers.removeAll { $0 == consumer }
        case .subscription: self.mailboxes[subscription.mailbox] = nil
        }
    }

    /// Returns messages that were not acknowledged to the front of their mailbox.
    mutating func requeue(_ deliveries: [Delivery], of subscriptions: [Subscription]) {
        var mailboxes: Set<MailboxID> = []
        for delivery in deliveries.reversed() {
            guard let subscription = subscriptions.first(where: { $0.number == delivery.subscription }) else {
                continue
            }
            var message = delivery.message
            message.isRedelivered = true
            self.mailboxes[subscription.mailbox]?.messages.prepend(message)
            mailboxes.insert(subscription.mailbox)
        }
        for subscription in subscriptions where mailboxes.remove(subscription.mailbox) != nil {
            self.dispatch(subscription.mailbox)
        }
    }

    // MARK: Acknowledgements

    /// ACK and NACK.
    mutating func settle(
        _ frame: STOMPFrame,
        _ version: STOMPVersion,
        isAck: Bool,
        on connection: Int
    ) throws(Fault) {
        let transaction = try self.transaction(of: frame, on: connection)
        let deliveries = try self.deliveries(of: frame, version, on: connection)
        guard let transaction else { return self.settle(deliveries, isAck: isAck, on: connection) }
        self.peers[connection]?.transactions[transaction]?.append(.settle(deliveries: deliveries, isAck: isAck))
        self.peers[connection]?.deliveries.claim(deliveries, true)
    }

    /// The numbers of the deliveries that a frame acknowledges: one, or in the mode `client` also those before it.
    private func deliveries(
        of frame: STOMPFrame,
        _ version: STOMPVersion,
        on connection: Int
    ) throws(Fault) -> [Int] {
        guard let peer = self.peers[connection] else { return [] }
        let found: Delivery?
        if version == .v1_2 {
            let id = try self.required("id", frame)
            let number = id.hasPrefix("ack-") ? Int(id.dropFirst(4)) : nil
            found = number.flatMap { "ack-\($0)" == id ? peer.deliveries[$0] : nil }
        } else {
            let id = try self.required("message-id", frame)
            var named = peer.subscriptions
            // In 1.0 it may be omitted.
            let subscription =
                version == .v1_1 ? try self.required("subscription", frame) : frame.headers["subscription"]
            if let subscription {
                named.removeAll { $0.id != subscription }
            }
            found = peer.deliveries.first { delivery in
                !delivery.isClaimed && "message-\(delivery.message.number)" == id
                    && named.contains { $0.number == delivery.subscription }
            }
        }
        guard let found, !found.isClaimed,
            let subscription = peer.subscriptions.first(where: { $0.number == found.subscription })
        else { throw Fault("message not found", "\(frame.command) is for no message that waits for it.") }
        guard subscription.mode == .client else { return [found.number] }
        return peer.deliveries.unclaimed(of: subscription.number, upTo: found.number)
    }

    private mutating func settle(_ numbers: [Int], isAck: Bool, on connection: Int) {
        let deliveries = self.peers[connection]?.deliveries.remove(numbers) ?? []
        var settled: [Subscription] = []
        for delivery in deliveries {
            let subscriptions = self.peers[connection]?.subscriptions
            guard let index = subscriptions?.firstIndex(where: { $0.number == delivery.subscription }) else { continue }
            self.peers[connection]?.subscriptions[index].unacknowledged -= 1
            if let subscription = subscriptions?[index], settled.last?.number != subscription.number {
                settled.append(subscription)
            }
        }
        if !isAck { return self.requeue(deliveries, of: settled) }
        for subscription in settled { self.dispatch(subscription.mailbox) }
    }

    // MARK: Transactions

    /// The open transaction that a frame names; nil if it names none.
    func transaction(of frame: STOMPFrame, on connection: Int) throws(Fault) -> String? {
        guard frame.headers.contains(name: "transaction") else { return nil }
        let name = try self.required("transaction", frame)
        guard self.peers[connection]?.transactions[name] != nil else {
            throw Fault("transaction not found", "There is no transaction \(name).")
        }
        return name
    }

    mutating func begin(_ frame: STOMPFrame, on connection: Int) throws(Fault) {
        let name = try self.required("transaction", frame)
        guard self.peers[connection]?.transactions[name] == nil else {
            throw Fault("duplicate transaction", "There is a transaction \(name) already.")
        }
        self.peers[connection]?.transactions[name] = []
    }

    mutating func commit(_ frame: STOMPFrame, on connection: Int) throws(Fault) {
        for operation in try self.takeTransaction(frame, on: connection) {
            switch operation {
            case .send(let message): self.route(message)
            case .settle(let deliveries, let isAck): self.settle(deliveries, isAck: isAck, on: connection)
            }
        }
    }

    mutating func abort(_ frame: STOMPFrame, on connection: Int) throws(Fault) {
        for case .settle(let deliveries, _) in try self.takeTransaction(frame, on: connection) {
            self.peers[connection]?.deliveries.claim(deliveries, false)
        }
    }

    private mutating func takeTransaction(_ frame: STOMPFrame, on connection: Int) throws(Fault) -> [Operation] {
        _ = try self.required("transaction", frame)
        guard let name = try self.transaction(of: frame, on: connection) else { return [] }
        return self.peers[connection]?.transactions.removeValue(forKey: name) ?? []
    }
}
