// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The network and the app's life.
extension ConnectionMachine {
    // MARK: The network

    /// Records the initial state of the network. It is not a change, so no connection is probed.
    mutating func networkIsKnown(isReachable: Bool, now: NIODeadline) -> [Action] {
        guard !isReachable, self.isReachable else { return [] }
        self.isReachable = false
        guard self.needsNetwork else { return [] }
        let report = Action.report(.networkChanged(isReachable: false))
        // If the user has requested a connection, one round is tried nevertheless.
        guard let reason = self.reasonToHold else { return [report] }
        return [report] + self.stopAttempts(reason)
    }

    /// The network was lost, has returned, or has another path.
    mutating func networkChanged(isReachable: Bool, now: NIODeadline) -> [Action] {
        guard isReachable || self.isReachable else { return [] }
        self.isReachable = isReachable
        self.insists = false
        let report = Action.report(.networkChanged(isReachable: isReachable))
        if let reason = self.reasonToHold { return [report] + self.stopAttempts(reason) }
        // The loss of the network does not affect a server on this machine.
        guard isReachable else { return [report] }
        let probed = self.doubtConnection().map { [Action.probe($0)] } ?? []
        return [report] + probed + self.makeAnew(isSpread: true, now: now)
    }

    /// Whether only the server itself can be the reason why it does not answer.
    func canBeReached(_ endpoint: Endpoint) -> Bool { self.isReachable || self.isOnThisMachine(endpoint) }

    /// Whether a server can be reached without a network. A "localhost" behind a proxy elsewhere cannot.
    private func isOnThisMachine(_ endpoint: Endpoint) -> Bool {
        endpoint.unixPath != nil || (self.settings.proxy ?? endpoint).isOnThisMachine
    }

    // MARK: The app's life

    mutating func didEnterBackground(now: NIODeadline) -> [Action] {
        guard !self.isInBackground else { return [] }
        self.isInBackground = true
        var actions: [Action] = [.report(.enteredBackground), .application(isActive: false)]
        guard let reason = self.reasonToHold else { return actions }
        guard let connection = self.current else { return actions + self.stopAttempts(reason) }
        actions += self.abandonMaking()
        guard self.settings.background == .failTasks else {
            return actions + [.paceHeartbeat(connection.id, isPaused: true)]
        }
        self.judge(connection, now: now)
        self.alternates = []
        var error = reason
        error.code = .connectionLost
        error.endpoint = connection.endpoint
        self.lastError = error
        // Its own cause is the previous error, and the chain would grow with each trip to the background.
        self.lastError?.underlying = nil
        actions += [.lost(connection.id, error), .close(connection.id), .report(.disconnected(error))]
        return actions + self.hold(reason)
    }

    mutating func willEnterForeground(now: NIODeadline) -> [Action] {
        guard self.isInBackground else { return [] }
        self.isInBackground = false
        var actions: [Action] = [.report(.willEnterForeground), .application(isActive: true)]
        guard self.reasonToHold == nil else { return actions }
        if let id = self.doubtConnection() { actions += [.paceHeartbeat(id, isPaused: false), .probe(id)] }
        return actions + self.makeAnew(isSpread: false, now: now)
    }

    // MARK: Pieces

    /// Whether none of the servers is on this machine.
    private var needsNetwork: Bool { !self.servers.endpoints.contains { self.isOnThisMachine($0) } }

    /// The reason why no attempt may be made now.
    var reasonToHold: SocketError? {
        if !self.isReachable, !self.insists, self.needsNetwork {
            return SocketError(
                .networkUnreachable,
                message: "there is no network; the connection is made as soon as there is one",
                underlying: self.lastError
            )
        }
        if self.isInBackground, self.settings.background != .keepConnected {
            return SocketError(
                .notConnected,
                message: "the app is in the background; the connection is made when it returns (BackgroundPolicy)",
                underlying: self.lastError
            )
        }
        return nil
    }

    /// Nothing is attempted until something changes.
    mutating func hold(_ reason: SocketError) -> [Action] {
        self.insists = false
        self.phase = .held(reason)
        return [.offline(reason)]
    }

    /// Stops attempts. A ready connection is not affected.
    mutating func stopAttempts(_ reason: SocketError) -> [Action] {
        switch self.phase {
        case .idle, .closed:
            return []
        case .ready:
            return self.abandonMaking()
        case .making:
            return self.abandonMaking() + self.hold(reason)
        case .waiting(let wait) where wait.isForReturn:
            return self.hold(reason)
        case .waiting, .held:
            self.phase = .held(reason)
            return []
        }
    }

    /// The path of the ready connection may be broken.
    ///
    /// - Returns: The connection to probe; nil if none is ready.
    private mutating func doubtConnection() -> ConnectionID? {
        guard case .ready(var ready) = self.phase else { return nil }
        ready.connection.isSuspect = true
        self.phase = .ready(ready)
        return ready.connection.id
    }

    /// Handles an improvement of the network or the app's return: connects, and does not trust earlier attempts.
    ///
    /// - Parameter isSpread: Whether many other clients may do the same now.
    private mutating func makeAnew(isSpread: Bool, now: NIODeadline) -> [Action] {
        if let making = self.making {
            let isOfUser = making.target != nil || making.avoided != nil
            guard isSpread, !isOfUser, self.ready == nil || self.ready?.departure != nil else {
                return self.startMaking(target: making.target, avoiding: making.avoided, now: now)
            }
            // The attempts may be those of the old path. A client that tries is notified of the change at the same
            // moment as all others are, too.
            let closed = self.abandonMaking()
            return closed + (self.isReady ? self.departSoon(now: now) : self.makeSoon(instead: self.change, now: now))
        }
        switch self.phase {
        case .idle, .closed, .making:
            return []
        case .ready:
            return isSpread ? self.departSoon(now: now) : self.departNow(now: now)
        case .held(let reason):
            self.failures = 0
            return isSpread ? self.makeSoon(instead: reason, now: now) : self.startMaking(now: now)
        case .waiting(let wait):
            self.failures = 0
            // Otherwise a network that changes again and again would put the attempt off for ever.
            if isSpread, wait.isSpread { return [] }
            return isSpread ? self.makeSoon(instead: wait.reason, now: now) : self.startMaking(now: now)
        }
    }

    /// The reason of a wait between attempts of which the path has changed.
    private var change: SocketError {
        SocketError(
            .notConnected,
            message: "the network has changed; the connection is made within a second",
            underlying: self.lastError
        )
    }

    /// Connects at a random time within the next second; at once if a call waits, or when one comes.
    ///
    /// When a network returns or changes, all of its clients notice it in the same moment.
    mutating func makeSoon(instead reason: SocketError, now: NIODeadline) -> [Action] {
        guard self.servers.isEmpty || self.servers.hasPresent(now: now) else { return self.startMaking(now: now) }
        let time = self.soonest(isCall: false, now: now)
        self.phase = .waiting(Wait(until: time, reason: reason, isForReturn: true, isSpread: true))
        return [.beingMade, .reconnectDeferred]
    }
}
