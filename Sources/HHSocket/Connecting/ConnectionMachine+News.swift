import NIOCore

/// What is heard from connections, the network, the app's life and the timer.
extension ConnectionMachine {
    /// A connection ended without our doing.
    ///
    /// - Parameter verdict: What follows from it, where its language or the peer said so.
    mutating func connectionLost(
        _ id: ConnectionID,
        _ error: SocketError,
        _ verdict: EndVerdict = EndVerdict(),
        now: NIODeadline
    ) -> [Action] {
        if self.draining.remove(id) != nil { return [.lost(id, error)] }
        if case .handshaking(let attempt, _) = self.making?.stage, attempt.id == id {
            self.making?.stage = .connecting
            return [.close(id)] + self.attemptFailed(attempt.endpoint, error, now: now)
        }
        guard case .ready(let connection) = self.phase, connection.id == id else { return [] }
        self.lastError = error
        if self.departure?.id == id { return self.leftConnectionLost(connection, error, now: now) }
        self.judge(connection, now: now)
        // What the network or a pause of ours did is not held against the server.
        if verdict.isServersFault, self.canBeReached(connection.endpoint), !self.isInBackground, !connection.isSuspect {
            self.servers.failed(connection.endpoint, now: now, using: &self.generator)
        }
        let actions: [Action] = [.lost(id, error), .report(.disconnected(error))]
        if self.making != nil {
            self.phase = .making
            return actions + [.beingMade]
        }
        switch verdict.next {
        case .never:
            self.phase = .idle
            return actions + self.giveUp(error)
        case .atOnce where self.reasonToHold == nil,
            .afterBackoff where connection.isSuspect && self.reasonToHold == nil:
            self.phase = .idle
            return actions + self.startMaking(now: now)
        case .notBefore(let time):
            return actions + self.wait(for: error, notBefore: time, now: now)
        case .atOnce, .afterBackoff:
            return actions + self.wait(for: error, now: now)
        }
    }

    /// What a connection that ends tells of its server.
    mutating func judge(_ connection: Connection, now: NIODeadline) {
        guard Duration(now - connection.since) >= self.settings.backoff.resetAfter else { return }
        self.failures = 0
        self.servers.proved(connection.endpoint, now: now)
    }

    /// A connection that had a successor has finished, and is closed.
    mutating func drained(_ id: ConnectionID) {
        self.draining.remove(id)
    }

    mutating func timerFired(now: NIODeadline) -> [Action] {
        guard let deadline = self.nextDeadline, now >= deadline else { return [] }
        if case .waiting = self.phase { return self.startMaking(now: now) }
        switch self.making?.stage {
        case nil:
            // The deadline was a departure's.
            return self.startMaking(now: now)
        case .resolving(let id, _):
            let timeout = self.settings.resolverTimeout ?? .zero
            let error = SocketError(.hostNotFound, message: "the resolver found no server within \(timeout)")
            return self.resolved(id, .failure(error), now: now)
        case .connecting:
            return self.joinRace(now: now)
        case .handshaking(let attempt, _):
            let timeout = self.settings.gateTimeout ?? .zero
            let why =
                self.awaitsHello
                ? """
                the server did not answer hello within \(timeout) (HelloPolicy.timeout); one that does not know hello may \
                leave it unanswered, so turn hello off for such servers
                """
                : "the handshake took longer than \(timeout) (HandshakeGate.timeout)"
            let error = SocketError(
                .handshakeTimeout,
                message: "cannot use the connection to \(attempt.endpoint): \(why)",
                endpoint: attempt.endpoint
            )
            return self.handshakeFailed(attempt.id, error, .tryAnotherServer, now: now)
        }
    }

    // MARK: The network

    /// What the network is like when that becomes known: nothing has changed, so nothing of before is doubted.
    mutating func networkIsKnown(isReachable: Bool, now: NIODeadline) -> [Action] {
        guard !isReachable, self.isReachable else { return [] }
        self.isReachable = false
        guard self.needsNetwork else { return [] }
        let report = Action.report(.networkChanged(isReachable: false))
        // Where the user has asked for a connection there is none: it is tried once.
        guard let reason = self.reasonToHold else { return [report] }
        return [report] + self.stopAttempts(reason)
    }

    /// There is no network any more, there is one again, or its path is another one.
    mutating func networkChanged(isReachable: Bool, now: NIODeadline) -> [Action] {
        guard isReachable || self.isReachable else { return [] }
        self.isReachable = isReachable
        self.insists = false
        let report = Action.report(.networkChanged(isReachable: isReachable))
        if let reason = self.reasonToHold { return [report] + self.stopAttempts(reason) }
        // For a server on this machine nothing has changed if the network is gone.
        guard isReachable else { return [report] }
        return [report] + self.goOnAtOnce(now: now)
    }

    /// Whether nothing but the server itself can be why it does not answer.
    func canBeReached(_ endpoint: Endpoint) -> Bool { self.isReachable || self.isOnThisMachine(endpoint) }

    /// Whether no network is needed to reach a server. To "localhost" behind a proxy elsewhere one is.
    private func isOnThisMachine(_ endpoint: Endpoint) -> Bool {
        endpoint.unixPath != nil || (self.settings.proxy ?? endpoint).isOnThisMachine
    }

    // MARK: The app's life

    mutating func didEnterBackground(now: NIODeadline) -> [Action] {
        guard !self.isInBackground else { return [] }
        self.isInBackground = true
        var actions: [Action] = [.report(.enteredBackground), .applicationIsActive(false)]
        guard let reason = self.reasonToHold else { return actions }
        guard let connection = self.current else { return actions + self.stopAttempts(reason) }
        actions += self.abandonMaking()
        guard self.settings.background == .failTasks else { return actions + [.pauseHeartbeat(connection.id)] }
        self.judge(connection, now: now)
        self.departure = nil
        var error = reason
        error.code = .connectionLost
        error.endpoint = connection.endpoint
        self.lastError = error
        // Its own cause is the error before, which would otherwise be kept for each trip to the background.
        self.lastError?.underlying = nil
        actions += [.lost(connection.id, error), .close(connection.id), .report(.disconnected(error))]
        return actions + self.hold(reason)
    }

    mutating func willEnterForeground(now: NIODeadline) -> [Action] {
        guard self.isInBackground else { return [] }
        self.isInBackground = false
        var actions: [Action] = [.report(.willEnterForeground), .applicationIsActive(true)]
        if self.reasonToHold == nil {
            if let connection = self.current { actions.append(.resumeHeartbeat(connection.id)) }
            actions += self.goOnAtOnce(now: now)
        }
        return actions
    }

    // MARK: Pieces

    /// Whether none of the servers is on this machine.
    private var needsNetwork: Bool { !self.servers.endpoints.contains { self.isOnThisMachine($0) } }

    /// Why no attempt may be made now.
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

    /// Nothing is attempted until there is news.
    mutating func hold(_ reason: SocketError) -> [Action] {
        self.isWaitingForReturn = false
        self.insists = false
        self.phase = .held(reason)
        return [.offline(reason)]
    }

    /// No attempt may be made any more. A ready connection is left as it is.
    mutating func stopAttempts(_ reason: SocketError) -> [Action] {
        let abandoned = self.abandonMaking()
        switch self.phase {
        case .idle, .closed, .ready:
            return abandoned
        case .waiting where self.isWaitingForReturn:
            return abandoned + self.hold(reason)
        case .held, .waiting:
            self.phase = .held(reason)
            return abandoned
        case .making:
            return abandoned + self.hold(reason)
        }
    }

    /// Something has changed for the better: nothing is waited for, and nothing of before is trusted.
    private mutating func goOnAtOnce(now: NIODeadline) -> [Action] {
        switch self.phase {
        case .idle, .closed:
            return []
        case .ready(var connection):
            connection.isSuspect = true
            self.phase = .ready(connection)
            let probe = Action.probe(connection.id)
            guard let making = self.making else { return [probe] + self.leaveAtOnce(now: now) }
            return [probe] + self.startMaking(target: making.target, avoiding: making.avoided, now: now)
        case .making:
            let target = self.making?.target
            return self.startMaking(target: target, avoiding: self.making?.avoided, now: now)
        case .held, .waiting:
            self.failures = 0
            return self.startMaking(now: now)
        }
    }

    /// The connection has proved that it lives, after a ``Action/probe(_:)``.
    mutating func connectionIsAlive(_ id: ConnectionID) {
        guard case .ready(var connection) = self.phase, connection.id == id, connection.isSuspect else { return }
        connection.isSuspect = false
        self.phase = .ready(connection)
    }
}
