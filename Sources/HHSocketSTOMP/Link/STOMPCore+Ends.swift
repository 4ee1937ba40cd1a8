// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers

/// The ends of connections and of the client, and the operations that end with them.
extension STOMPCore {
    func refusal(_ error: STOMPServerError, _ peer: STOMPPeer) -> SocketError {
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

    /// Ends the subscription or operation that the broker's ERROR refers to, if it can be identified: otherwise it
    /// would end the next connection too.
    func blame(_ error: STOMPServerError, _ peer: STOMPPeer) {
        peer.serverError = error
        if let receipt = error.receipt, let operation = self.operations.awaiting(receipt) {
            self.complete(operation, .failure(Self.error(error, peer)))
        } else if let route = self.route(of: error) {
            self.remove(route, Self.error(error, peer))
        }
    }

    /// The error of an operation that the broker had not confirmed when the connection ended. A preceding ERROR may
    /// refer to it or not: RabbitMQ does not say.
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

    /// The subscription that an ERROR refers to; nil if that is unknown.
    private func route(of error: STOMPServerError) -> STOMPRoute? {
        if let receipt = error.receipt { return self.routes.values.first { $0.receipt == receipt } }
        if let id = error.headers["subscription"] { return self.routes[id] }
        // RabbitMQ names no receipt.
        return self.unconfirmedRoute
    }

    func linkEnded(_ peer: STOMPPeer, in turn: inout Turn) {
        peer.abandonHandshake()
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
            route.state = .unsent
            route.isRestored = false
        }
        self.reconsiderReading()
    }

    /// Handles a WebSocket that the broker has closed with a close frame: in answer to DISCONNECT, as RabbitMQ does, or
    /// on its own initiative.
    func closedInOrder(_ peer: STOMPPeer) {
        if peer.link.phase == .closing {
            self.hasParted.withLockedValue { $0 = true }
        } else if peer === self.peer {
            self.suspectSubscription(at: peer.endpoint)
        }
    }

    /// Handles the end of all attempts to connect. Operations that waited for a connection fail.
    func gaveUp(_ error: SocketError) {
        for waiter in self.connectionWaiters { self.complete(waiter, .failure(error)) }
        for waiter in self.routes.values.flatMap(\.waiters) { self.complete(waiter, .failure(error)) }
        // If the driver tries again by itself, subscriptions wait for it.
        guard let driver = self.driver, !driver.hasRunOut else { return }
        for route in self.routes.values { self.remove(route, error) }
    }

    /// Closes on behalf of the user: operations no longer wait for a connection.
    func closedByUser() {
        let error = SocketError(.notConnected, message: "the client was disconnected")
        for waiter in self.connectionWaiters { self.complete(waiter, .failure(error)) }
    }

    /// Ends everything because the client is released.
    func release(in turn: inout Turn) {
        self.isOver = true
        self.notifyIdle(in: &turn)
        for operation in self.operations.all { self.abandon(operation, Self.released.code, Self.released.message) }
        for route in self.routes.values { route.finish(nil) }
        self.routes = [:]
        if let timer = self.timer { self.driver?.loop.removeTimer(timer) }
        self.timer = nil
    }
}
