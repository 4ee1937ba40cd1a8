// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// Subscriptions.
extension STOMPCore {
    /// Makes a subscription: now, or once there is a connection, and again on each that follows.
    func subscribe(
        _ route: STOMPRoute,
        to destination: String,
        headers: STOMPHeaders,
        window: Int,
        in turn: inout Turn
    ) {
        guard !self.isOver else { return route.finish(nil) }
        let isNew = self.machine.subscribe(
            route.id,
            to: destination,
            ackMode: route.ackMode,
            headers: headers,
            window: window
        )
        guard isNew else {
            return route.finish(
                SocketError(
                    .invalidArgument,
                    message: "there is a subscription with the id \(route.id) already; ids must differ"
                )
            )
        }
        self.routes[route.id] = route
        if let peer = self.peer, peer.link.phase == .open { self.subscribe(route.id, in: &turn) }
    }

    /// Sends SUBSCRIBE on the current connection.
    func subscribe(_ id: String, in turn: inout Turn) {
        guard let route = self.routes[id] else { return }
        let receipt = self.machine.makeReceipt()
        guard let frame = self.machine.subscribing(id, receipt: receipt) else { return }
        let unit = STOMPUnit(frame, nil, isOfOneConnection: true)
        if let refusal = self.refusal(of: unit) ?? self.modeRefusal(route) { return self.remove(route, refusal) }
        route.state = .awaited(receipt: receipt)
        _ = self.peer?.send(unit, in: &turn)
    }

    private func modeRefusal(_ route: STOMPRoute) -> SocketError? {
        guard route.ackMode == .clientIndividual, let agreement = self.machine.agreement, agreement.version == .v1_0
        else { return nil }
        return SocketError(
            .invalidArgument,
            message: "the broker speaks STOMP 1.0, which has no ack mode client-individual; use client",
            endpoint: agreement.endpoint
        )
    }

    /// The broker has dealt with a SUBSCRIBE.
    func confirmSubscription(_ receipt: String) {
        guard let route = self.routes.values.first(where: { $0.receipt == receipt }) else { return }
        route.refusals = 0
        route.state = .confirmed
        let waiters = route.waiters
        route.waiters = []
        for waiter in waiters { self.complete(waiter, .success(())) }
    }

    /// Calls `completion` once the broker has confirmed the subscription on the current connection.
    func whenSubscribed(_ route: STOMPRoute, in turn: inout Turn, _ completion: @escaping STOMPOperation.Completion) {
        guard !self.isOver else { return completion(.failure(Self.released)) }
        guard self.routes[route.id] === route else {
            let error = SocketError(.cancelled, message: "the subscription \(route.id) has ended")
            return completion(.failure(route.error ?? error))
        }
        if case .confirmed = route.state { return completion(.success(())) }
        let operation = STOMPOperation(.waiting("SUBSCRIBE"), receipt: nil, completion)
        route.waiters.removeAll { !$0.isOpen }
        route.waiters.append(operation)
        self.add(operation, in: &turn)
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
        let frame = self.machine.unsubscribe(route.id, headers: headers)
        let isThere = route.isSent
        self.remove(route, nil)
        guard isThere, let frame, let peer = self.peer, peer.link.phase == .open else {
            completion?(.success(()))
            return
        }
        self.send(frame, awaitsReceipt: completion != nil, isOfOneConnection: true, in: &turn, completion)
    }

    /// Removes a subscription, which gets no more messages.
    ///
    /// - Parameter error: The reason; nil: the user has ended it.
    func remove(_ route: STOMPRoute, _ error: SocketError?) {
        _ = self.machine.unsubscribe(route.id, headers: STOMPHeaders())
        self.routes[route.id] = nil
        route.finish(error)
        let waiters = route.waiters
        route.waiters = []
        let cancelled = SocketError(.cancelled, message: "the subscription \(route.id) was ended")
        for waiter in waiters { self.complete(waiter, .failure(error ?? cancelled)) }
        self.isNoLongerFull(route.id)
        if self.isCareful { self.perform { self.subscribeNext(in: &$0) } }
    }
}
