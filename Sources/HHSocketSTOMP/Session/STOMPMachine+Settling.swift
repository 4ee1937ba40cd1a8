// SPDX-License-Identifier: Apache-2.0
package import HHSocketLink

/// Acknowledgements.
extension STOMPMachine {
    /// The messages that one frame settles, to reopen them if it was never sent.
    package struct Settlement: Sendable {
        fileprivate var connection: UInt64
        fileprivate var subscription: String
        fileprivate var numbers: [UInt64]
        fileprivate var isCumulative: Bool
        fileprivate var transaction: String?
    }

    /// Acknowledges a message, or rejects it.
    ///
    /// - Parameter transaction: The transaction that it is part of.
    /// - Returns: The frame to send, and what to undo if it was not sent; nil if the message is acknowledged already.
    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument` if that is not possible; `connectionLost` if the
    ///   connection that delivered it is closed: the broker delivers it again.
    package mutating func settle(
        _ delivery: STOMPDelivery,
        isAcknowledged: Bool,
        in transaction: String?,
        headers: STOMPHeaders = STOMPHeaders()
    ) throws(SocketError) -> (frame: STOMPFrame, settlement: Settlement)? {
        let verb = isAcknowledged ? "acknowledged" : "rejected"
        guard delivery.ackMode != .auto else {
            throw .invalid(
                "a message of a subscription with ack mode auto cannot be \(verb); subscribe with another mode"
            )
        }
        guard let agreement = self.agreement, delivery.connection == self.connection else {
            throw STOMPErrors.lost(
                "a message cannot be \(verb): the connection that delivered it is gone, so it is delivered again"
            )
        }
        guard isAcknowledged || agreement.version > .v1_0 else {
            throw .invalid("a message cannot be rejected: STOMP 1.0 has no NACK")
        }
        guard let index = self.subscriptions.index(forKey: delivery.subscription) else {
            throw .invalid("a message cannot be \(verb): its subscription has ended, so it is delivered again")
        }
        guard let identifier = delivery.identifier else {
            let header = agreement.version == .v1_2 ? "ack" : "message-id"
            throw .invalid("a message cannot be \(verb): the broker sent it without the header \(header)")
        }
        if let transaction, self.transactions[transaction] == nil { throw Self.noTransaction() }
        let isCumulative = delivery.ackMode == .client
        let settled = self.subscriptions.values[index].acks.settle(delivery.number, isCumulative: isCumulative)
        guard !settled.isEmpty else {
            guard !isAcknowledged else { return nil }
            throw .invalid("a message cannot be rejected: it was settled before")
        }
        if let transaction {
            self.transactions[transaction]?.settled[delivery.subscription, default: []].append(contentsOf: settled)
        }
        self.trim(delivery.subscription)
        let settlement = Settlement(
            connection: self.connection,
            subscription: delivery.subscription,
            numbers: settled,
            isCumulative: isCumulative,
            transaction: transaction
        )
        return (
            self.settling(
                delivery,
                identifier: identifier,
                version: agreement.version,
                isAcknowledged: isAcknowledged,
                transaction: transaction,
                headers: headers
            ),
            settlement
        )
    }

    /// Reopens the messages of a frame that was not sent: they can be settled by another one. Has no effect once their
    /// connection has ended, or if a later cumulative acknowledgement has covered them.
    package mutating func undo(_ settlement: Settlement) {
        guard settlement.connection == self.connection else { return }
        if let transaction = settlement.transaction {
            // Its end has decided on them.
            guard self.transactions[transaction] != nil else { return }
            self.transactions[transaction]?.settled[settlement.subscription]?.removeAll(
                where: Set(settlement.numbers).contains
            )
        }
        guard let index = self.subscriptions.index(forKey: settlement.subscription) else { return }
        if settlement.isCumulative, let last = settlement.numbers.max(),
            self.subscriptions.values[index].acks.hasSettled(after: last)
        {
            return
        }
        self.subscriptions.values[index].acks.reopen(settlement.numbers)
        self.trim(settlement.subscription)
    }

    private func settling(
        _ delivery: STOMPDelivery,
        identifier: String,
        version: STOMPVersion,
        isAcknowledged: Bool,
        transaction: String?,
        headers others: STOMPHeaders
    ) -> STOMPFrame {
        var headers = STOMPHeaders()
        headers.add(name: version == .v1_2 ? "id" : "message-id", value: identifier)
        // 1.0 does not require it, but cannot distinguish two subscriptions' copies of a message without it.
        if version < .v1_2 { headers.add(name: "subscription", value: delivery.subscription) }
        if let transaction { headers.add(name: "transaction", value: transaction) }
        for (name, value) in others { headers.add(name: name, value: value) }
        return STOMPFrame(isAcknowledged ? .ack : .nack, headers)
    }

    /// Forgets messages that are settled for good, and checks again whether too many are not.
    mutating func trim(_ id: String) {
        guard let index = self.subscriptions.index(forKey: id) else { return }
        let first = self.transactions.values.compactMap { $0.settled[id]?.min() }.min()
        self.subscriptions.values[index].acks.trim(before: first)
        let (count, window) = (
            self.subscriptions.values[index].acks.openCount, self.subscriptions.values[index].window
        )
        if count <= window { self.overdrawn.remove(id) } else { self.overdrawn.insert(id) }
    }
}
