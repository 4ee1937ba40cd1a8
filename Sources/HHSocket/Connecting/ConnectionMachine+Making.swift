import NIOCore

/// How connections are made: rounds, races, the gate, and what comes of them.
extension ConnectionMachine {
    /// Begins a round. Whatever was being made before is abandoned; a ready connection stays until it has a successor.
    mutating func startMaking(
        target: Endpoint? = nil,
        avoiding avoided: Endpoint? = nil,
        now: NIODeadline
    ) -> [Action] {
        var actions = self.abandonMaking()
        if let connection = self.current, !self.settings.linksMayOverlap {
            actions += self.part(with: connection, now: now)
        }
        self.isWaitingForReturn = false
        self.making = Making(target: target, avoided: avoided)
        switch self.phase {
        case .making, .ready:
            break
        case .idle, .waiting, .held, .closed:
            self.phase = .making
            actions.append(.beingMade)
        }
        guard let timeout = self.settings.resolverTimeout else { return actions + self.beginRound(now: now) }
        let id = self.makeID()
        self.making?.stage = .resolving(id, until: now.advanced(clamping: TimeAmount(clamping: timeout)))
        return actions + [.resolve(id)]
    }

    /// Gives up the ready connection before another is made.
    private mutating func part(with connection: Connection, now: NIODeadline) -> [Action] {
        let isLeft = self.departure?.id == connection.id
        if !isLeft { self.judge(connection, now: now) }
        self.phase = .idle
        let error = SocketError(
            .connectionLost,
            message: "the connection to \(connection.endpoint) was left for another one",
            endpoint: connection.endpoint
        )
        self.lastError = error
        return (isLeft ? [] : [.leave(connection.id)])
            + [.part(connection.id, error), .report(.disconnected(error))]
    }

    /// Closes what is being made. The phase stays.
    mutating func abandonMaking() -> [Action] {
        guard let making = self.making else { return [] }
        self.making = nil
        if case .handshaking(let attempt, _) = making.stage { return [.close(attempt.id)] }
        return making.attempts.map { .close($0.id) }
    }

    /// The list has changed while a connection is being made: attempts at servers that are gone are given up.
    mutating func adjustMaking(now: NIODeadline) -> [Action] {
        guard let making = self.making else { return [] }
        let inProgress: [Endpoint]
        switch making.stage {
        case .resolving: return []
        case .connecting: inProgress = making.attempts.map(\.endpoint)
        case .handshaking(let attempt, _): inProgress = [attempt.endpoint]
        }
        guard inProgress.allSatisfy({ self.servers.contains($0) }) else {
            return self.startMaking(avoiding: making.avoided, now: now)
        }
        let untried = self.servers.round(now: now, using: &self.generator).filter {
            !making.tried.contains($0) && $0 != making.avoided
        }
        self.making?.candidates = untried[...]
        self.scheduleNextStart(now: now)
        return []
    }

    /// The resolver has answered, or failed.
    mutating func resolved(
        _ id: ConnectionID,
        _ result: Result<[Endpoint], SocketError>,
        now: NIODeadline
    ) -> [Action] {
        guard case .resolving(id, _) = self.making?.stage else { return [] }
        switch result {
        case .success(let endpoints) where !endpoints.isEmpty:
            self.servers.replace(with: endpoints)
            self.lastErrors = self.lastErrors.filter { self.servers.contains($0.key) }
            if let target = self.making?.target { self.servers.prefer(target) }
            if let reason = self.reasonToHold { return self.stopAttempts(reason) }
            return self.beginRound(now: now)
        case .success:
            return self.resolutionFailed(
                SocketError(.hostNotFound, message: "the resolver found no server; see that it returns at least one"),
                now: now
            )
        case .failure(let error):
            return self.resolutionFailed(error, now: now)
        }
    }

    private mutating func resolutionFailed(_ error: SocketError, now: NIODeadline) -> [Action] {
        self.lastError = error
        guard !self.servers.isEmpty else { return [.report(.connectFailed(error))] + self.roundFailed(error, now: now) }
        return [.report(.connectFailed(error))] + self.beginRound(now: now)
    }

    private mutating func beginRound(now: NIODeadline) -> [Action] {
        guard let making = self.making else { return [] }
        self.making?.stage = .connecting
        if let others = self.departure?.others {
            self.take(hearsay: others)
            // Whether to try without a network depends on the list.
            if let reason = self.reasonToHold { return self.stopAttempts(reason) }
        }
        var candidates = self.servers.round(now: now, using: &self.generator)
        if let target = making.target {
            candidates.removeAll { $0 == target }
            // A user that asked for one server does not want to reach a third.
            candidates = self.isReady ? [target] : [target] + candidates
        } else if let avoided = making.avoided, candidates.contains(where: { $0 != avoided }) {
            let stays = candidates.contains(avoided) && !self.isReady
            candidates.removeAll { $0 == avoided }
            if stays { candidates.append(avoided) }
        }
        if making.target == nil, let others = self.departure?.others, !others.isEmpty {
            candidates = others.filter(candidates.contains) + candidates.filter { !others.contains($0) }
        }
        guard !candidates.isEmpty else {
            if let time = self.servers.nextReturn(now: now) { return self.awaitReturn(until: time) }
            return self.giveUp(Self.noServers)
        }
        self.making?.candidates = candidates[...]
        return self.openNext(now: now)
    }

    private static var noServers: SocketError {
        SocketError(
            .invalidArgument,
            message: "there is no server to connect to; put at least one into the configuration's list"
        )
    }

    private mutating func openNext(now: NIODeadline) -> [Action] {
        guard let endpoint = self.making?.candidates.popFirst() else { return [] }
        let attempt = Attempt(id: self.makeID(), endpoint: endpoint)
        self.attempts += 1
        self.making?.attempts.append(attempt)
        self.making?.tried.insert(endpoint)
        self.scheduleNextStart(now: now)
        return [.report(.connecting(endpoint, attempt: self.attempts)), .open(attempt.id, endpoint)]
    }

    private mutating func scheduleNextStart(now: NIODeadline) {
        self.making?.nextStart = nil
        guard let racing = self.settings.racing, let making = self.making, !making.candidates.isEmpty,
            making.attempts.count < racing.maximumAttempts
        else { return }
        self.making?.nextStart = now.advanced(clamping: TimeAmount(clamping: racing.stagger))
    }

    /// The attempts so far have had their head start: one more begins.
    mutating func joinRace(now: NIODeadline) -> [Action] {
        self.making?.nextStart = nil
        return self.openNext(now: now)
    }

    // MARK: Attempts

    mutating func connected(_ id: ConnectionID, now: NIODeadline) -> [Action] {
        guard let making = self.making, case .connecting = making.stage,
            let winner = making.attempts.first(where: { $0.id == id })
        else { return [.close(id)] }
        let losers: [Action] = making.attempts.filter { $0.id != id }.map { .close($0.id) }
        self.making?.attempts = []
        self.making?.nextStart = nil
        guard let timeout = self.settings.gateTimeout else { return losers + self.becomeReady(winner, now: now) }
        self.awaitsHello = false
        self.making?.stage = .handshaking(winner, until: now.advanced(clamping: TimeAmount(clamping: timeout)))
        return losers + [
            .report(.handshaking(winner.endpoint)), .shakeHands(id, winner.endpoint, attempt: self.attempts),
        ]
    }

    mutating func connectFailed(_ id: ConnectionID, _ error: SocketError, now: NIODeadline) -> [Action] {
        guard case .connecting = self.making?.stage,
            let index = self.making?.attempts.firstIndex(where: { $0.id == id }),
            let attempt = self.making?.attempts.remove(at: index)
        else { return [] }
        return self.attemptFailed(attempt.endpoint, error, now: now)
    }

    mutating func handshakeSucceeded(_ id: ConnectionID, now: NIODeadline) -> [Action] {
        guard case .handshaking(let attempt, _) = self.making?.stage, attempt.id == id else { return [] }
        return self.becomeReady(attempt, now: now)
    }

    mutating func handshakeFailed(
        _ id: ConnectionID,
        _ error: SocketError,
        _ remedy: HandshakeRefusal.Remedy,
        now: NIODeadline
    ) -> [Action] {
        guard case .handshaking(let attempt, _) = self.making?.stage, attempt.id == id else { return [] }
        self.making?.stage = .connecting
        switch remedy.kind {
        case .tryAnotherServer:
            return [.close(id)] + self.attemptFailed(attempt.endpoint, error, now: now)
        case .trySameServer:
            // It is no fault of the server's, so nothing is held against it; and no other one is asked before it.
            self.note(error, of: attempt.endpoint)
            self.servers.prefer(attempt.endpoint)
            return [.close(id), .report(.connectFailed(error))] + self.roundFailed(error, now: now)
        case .stop:
            self.note(error, of: attempt.endpoint)
            return [.close(id), .report(.connectFailed(error))] + self.giveUp(error)
        }
    }

    /// - Parameter isFault: Whether it is held against the server.
    mutating func attemptFailed(
        _ endpoint: Endpoint,
        _ error: SocketError,
        isFault: Bool = true,
        now: NIODeadline
    ) -> [Action] {
        self.note(error, of: endpoint)
        if isFault, self.canBeReached(endpoint) { self.servers.failed(endpoint, now: now, using: &self.generator) }
        let report = Action.report(.connectFailed(error))
        guard let making = self.making else { return [report] }
        if !making.candidates.isEmpty { return [report] + self.openNext(now: now) }
        if !making.attempts.isEmpty { return [report] }
        return [report] + self.roundFailed(error, now: now)
    }

    private mutating func note(_ error: SocketError, of endpoint: Endpoint) {
        self.lastError = error
        self.lastErrors[endpoint] = error
    }

    // MARK: Ends

    private mutating func becomeReady(_ attempt: Attempt, now: NIODeadline) -> [Action] {
        let predecessor = self.current
        // Then what it tells of its server has been noted.
        let isLeft = self.departure != nil
        self.departure = nil
        self.making = nil
        self.phase = .ready(Connection(id: attempt.id, endpoint: attempt.endpoint, since: now))
        self.attempts = 0
        self.failedRounds = 0
        self.allowedRounds = nil
        self.insists = false
        self.lastErrors = [:]
        // What went wrong before it has nothing to do with what goes wrong from now on.
        self.lastError = nil
        guard let predecessor else {
            return [.ready(attempt.id, attempt.endpoint), .report(.connected(attempt.endpoint))]
        }
        if !isLeft { self.judge(predecessor, now: now) }
        self.draining.insert(predecessor.id)
        return [
            .ready(attempt.id, attempt.endpoint), .drain(predecessor.id),
            .report(.switched(from: predecessor.endpoint, to: attempt.endpoint)),
        ]
    }

    private mutating func roundFailed(_ error: SocketError, now: NIODeadline) -> [Action] {
        let tried = self.making?.tried ?? []
        self.making = nil
        self.insists = false
        guard !self.isReady else {
            return [.report(.switchFailed(error))] + self.departureRoundFailed(now: now)
        }
        // Without those that are away it was no whole round.
        if let time = self.servers.nextReturn(besides: tried, now: now), self.reasonToHold == nil {
            return self.await(time, after: error, now: now)
        }
        self.failedRounds += 1
        if let limit = self.allowedRounds ?? self.settings.backoff.maximumRounds, self.failedRounds >= limit {
            return self.giveUp(error)
        }
        return self.wait(for: error, now: now)
    }

    /// Stops. `reason` is the error of the calls that wait.
    mutating func giveUp(_ reason: SocketError) -> [Action] {
        self.making = nil
        self.insists = false
        self.lastError = reason
        guard !self.isReady else {
            // As long as it lasts the connection stays, though what waits for a successor waits in vain.
            self.departure?.starts = .distantFuture
            return [.report(.switchFailed(reason))]
        }
        self.phase = .closed
        self.departure = nil
        let isVerdict = reason.code == .invalidArgument || reason.code == .handshakeRefused
        return [.offline(reason), .report(.gaveUp(isVerdict ? reason : self.unreachable(reason)))]
    }

    private func unreachable(_ last: SocketError) -> SocketError {
        let known = self.servers.endpoints.compactMap { self.lastErrors[$0] }
        let errors = known.isEmpty ? [last] : known
        let rounds = self.failedRounds == 1 ? "one round" : "\(self.failedRounds) rounds"
        return SocketError(
            .noServerReachable,
            message: """
                no server can be reached, after \(rounds) of attempts: \
                \(errors.map(\.message).joined(separator: "; "))
                """,
            underlying: UnreachableServers(errors: errors),
            endpoint: last.endpoint
        )
    }

    /// Nothing is ready any more, and nothing is being made.
    ///
    /// - Parameter time: The least that is waited, whatever the back-off says.
    mutating func wait(for error: SocketError, notBefore time: Duration = .zero, now: NIODeadline) -> [Action] {
        if let reason = self.reasonToHold { return self.hold(reason) }
        let delay = max(self.nextDelay(), time)
        let until = now.advanced(clamping: TimeAmount(clamping: delay))
        self.phase = .waiting(until: until, reason: error, pulledForward: false)
        return [.offline(error), .report(.waiting(delay: delay, reason: error))]
    }

    /// The wait after a round that failed.
    mutating func nextDelay() -> Duration {
        defer { self.failures += 1 }
        return self.settings.backoff.delay(afterFailures: self.failures, using: &self.generator)
    }

    // MARK: Pieces

    var current: Connection? {
        if case .ready(let connection) = self.phase { connection } else { nil }
    }

    var isReady: Bool { self.current != nil }

    /// The server that the latest attempt is for.
    var endpointBeingTried: Endpoint? {
        guard let making = self.making else { return nil }
        if case .handshaking(let attempt, _) = making.stage { return attempt.endpoint }
        return making.attempts.last?.endpoint
    }

    private mutating func makeID() -> ConnectionID {
        defer { self.nextID += 1 }
        return ConnectionID(number: self.nextID)
    }
}
