// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// Subscriptions that a broker refuses without saying which: they would end every connection.
extension STOMPCore {
    /// The first unconfirmed subscription among those restored at the beginning of the current connection: brokers
    /// process these in order.
    var unconfirmedRoute: STOMPRoute? {
        self.machine.subscriptionIDs.lazy.compactMap { self.routes[$0] }.first { $0.isRestored && $0.receipt != nil }
    }

    /// Sends SUBSCRIBE for the subscriptions that a connection begins with: all of them at once, or each after the
    /// previous one's receipt in order to find out which one the broker refuses.
    func subscribeRestored(in turn: inout Turn) {
        let routes = self.machine.subscriptionIDs.compactMap { self.routes[$0] }
        for route in routes { route.isRestored = true }
        guard self.isCareful else {
            for route in routes { self.subscribe(route.id, in: &turn) }
            return
        }
        self.subscribeNext(in: &turn)
    }

    /// Continues with the subscriptions that are made one after the other.
    func subscribeNext(in turn: inout Turn) {
        guard self.isCareful, self.unconfirmedRoute == nil else { return }
        for id in self.machine.subscriptionIDs {
            guard let route = self.routes[id], route.isRestored, !route.isSent else { continue }
            self.subscribe(id, in: &turn)
            if route.isSent { return }
        }
        self.isCareful = false
    }

    /// The number of connections after which a subscription is held to be refused, of those that make one after the
    /// other.
    private static var refusalsInARow: Int { 2 }

    /// The beginning of RabbitMQ's name in CONNECTED.
    private static var rabbitMQ: String { "RabbitMQ/" }

    /// Handles a close frame of the broker during restoration, without a reason.
    ///
    /// RabbitMQ closes a WebSocket where it sends ERROR on TCP, for example for a queue that the user may not read.
    /// Other brokers may send no receipts at all, which would look the same.
    func suspectSubscription(at endpoint: Endpoint) {
        guard self.machine.agreement?.server?.hasPrefix(Self.rabbitMQ) ?? false, let route = self.unconfirmedRoute
        else { return }
        guard self.isCareful else {
            self.isCareful = true
            return
        }
        route.refusals += 1
        guard route.refusals >= Self.refusalsInARow else { return }
        let error = SocketError(
            .brokerError,
            message: """
                the broker at \(endpoint) seems to refuse the subscription \(route.id): instead of confirming it, it has \
                closed \(route.refusals) connections in succession, without a reason
                """,
            endpoint: endpoint,
            delivery: .answered
        )
        self.remove(route, error)
    }
}
