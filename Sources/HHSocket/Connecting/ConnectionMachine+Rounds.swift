// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Rounds of attempts: how a round begins, which servers it tries, and what follows when it fails.
extension ConnectionMachine {
    /// Begins a round. A connection being made is abandoned; a ready connection stays until it has a successor.
    mutating func startMaking(
        target: Endpoint? = nil,
        avoiding avoided: Endpoint? = nil,
        now: NIODeadline
    ) -> [Action] {
        var isNews = true
        if case .making = self.phase { isNews = false }
        var actions = self.abandonMaking()
        if let ready = self.ready {
            if self.settings.linksMayOverlap { isNews = false } else { actions += self.part(with: ready, now: now) }
        }
        if isNews { actions.append(.beingMade) }
        var making = Making(target: target, avoided: avoided)
        guard let timeout = self.settings.resolverTimeout else { return actions + self.beginRound(making, now: now) }
        let id = self.makeID()
        making.stage = .resolving(id, until: now.advanced(clamping: TimeAmount(clamping: timeout)))
        self.proceed(making)
        return actions + [.resolve(id)]
    }

    /// Gives up the ready connection before another is made.
    private mutating func part(with ready: Ready, now: NIODeadline) -> [Action] {
        let connection = ready.connection
        if ready.departure == nil { self.judge(connection, now: now) }
        self.phase = .idle
        let error = SocketError(
            .connectionLost,
            message: "the connection to \(connection.endpoint) was left for another one",
            endpoint: connection.endpoint
        )
        self.lastError = error
        return (ready.departure == nil ? [.goAway(connection.id)] : [])
            + [.part(connection.id, error), .report(.disconnected(error))]
    }

    /// Closes the connection being made.
    mutating func abandonMaking() -> [Action] {
        guard let making = self.making else { return [] }
        self.stopMaking()
        return making.attempts.map { .close($0.id) }
    }

    /// The list changed while a connection is being made: attempts to removed servers are abandoned.
    mutating func adjust(_ making: Making, now: NIODeadline) -> [Action] {
        if case .resolving = making.stage { return [] }
        guard making.attempts.allSatisfy({ self.servers.contains($0.endpoint) }) else {
            return self.startMaking(avoiding: making.avoided, now: now)
        }
        var making = making
        let untried = self.servers.round(now: now, using: &self.generator).filter {
            !making.tried.contains($0) && $0 != making.avoided
        }
        making.candidates = untried[...]
        self.scheduleNextStart(&making, now: now)
        self.proceed(making)
        return []
    }

    /// The resolver has answered, or failed.
    mutating func resolved(
        _ id: ConnectionID,
        _ result: Result<[Endpoint], SocketError>,
        now: NIODeadline
    ) -> [Action] {
        guard let making = self.making, case .resolving(id, _) = making.stage else { return [] }
        let families = self.settings.addressFamilies
        let error: SocketError
        switch result {
        case .success(let endpoints) where endpoints.contains(where: families.allow):
            self.setServers(endpoints.filter(families.allow), keepsStart: true)
            if let target = making.target { self.servers.prefer(target) }
            if let reason = self.reasonToHold { return self.stopAttempts(reason) }
            return self.beginRound(making, now: now)
        case .success(let endpoints):
            error = SocketError(.hostNotFound, message: families.noServer(among: endpoints))
        case .failure(let failure):
            error = failure
        }
        self.lastError = error
        let report = Action.report(.connectFailed(error))
        guard !self.servers.isEmpty else { return [report] + self.roundFailed(making, because: error, now: now) }
        return [report] + self.beginRound(making, now: now)
    }

    private mutating func beginRound(_ making: Making, now: NIODeadline) -> [Action] {
        var making = making
        making.stage = .racing(Race())
        self.proceed(making)
        if !self.alternates.isEmpty {
            self.addAlternates(self.alternates)
            // Whether to try without a network depends on the list.
            if let reason = self.reasonToHold { return self.stopAttempts(reason) }
        }
        let candidates = self.candidates(of: making, now: now)
        guard !candidates.isEmpty else {
            if let time = self.servers.nextReturn(now: now) { return self.awaitReturn(until: time) }
            return self.giveUp(Self.noServers)
        }
        making.candidates = candidates[...]
        return self.openNext(making, now: now)
    }

    /// The servers that a round tries, in this order.
    private mutating func candidates(of making: Making, now: NIODeadline) -> [Endpoint] {
        var candidates = self.servers.round(now: now, using: &self.generator)
        if let target = making.target {
            candidates.removeAll { $0 == target }
            // A user who requested one server does not want to reach a third one.
            return self.isReady ? [target] : [target] + candidates
        }
        if let avoided = making.avoided, candidates.contains(where: { $0 != avoided }) {
            let stays = candidates.contains(avoided) && !self.isReady
            candidates.removeAll { $0 == avoided }
            if stays { candidates.append(avoided) }
        }
        let alternates = self.settings.addressFamilies.sorted(self.alternates.filter(candidates.contains))
        return alternates + candidates.filter { !self.alternates.contains($0) }
    }

    private static var noServers: SocketError {
        .invalid("there is no server to connect to; put at least one into the configuration's list")
    }

    private mutating func openNext(_ making: Making, now: NIODeadline) -> [Action] {
        var making = making
        guard case .racing(var race) = making.stage, let endpoint = making.candidates.popFirst() else {
            self.scheduleNextStart(&making, now: now)
            self.proceed(making)
            return []
        }
        let attempt = Attempt(id: self.makeID(), endpoint: endpoint)
        self.attempts += 1
        race.attempts.append(attempt)
        making.stage = .racing(race)
        making.tried.insert(endpoint)
        self.scheduleNextStart(&making, now: now)
        self.proceed(making)
        return [.report(.connecting(endpoint, attempt: self.attempts)), .open(attempt.id, endpoint)]
    }

    private func scheduleNextStart(_ making: inout Making, now: NIODeadline) {
        guard case .racing(var race) = making.stage else { return }
        race.nextStart = nil
        if let racing = self.settings.racing, !making.candidates.isEmpty, race.attempts.count < racing.maximumAttempts {
            race.nextStart = now.advanced(clamping: TimeAmount(clamping: racing.stagger))
        }
        making.stage = .racing(race)
    }

    mutating func timerFired(now: NIODeadline) -> [Action] {
        guard let deadline = self.nextDeadline, now >= deadline else { return [] }
        // Without one that is being made, the deadline is a wait's or a departure's.
        guard let making = self.making else { return self.startMaking(now: now) }
        switch making.stage {
        case .resolving(let id, _):
            let timeout = self.settings.resolverTimeout ?? .zero
            let error = SocketError(.hostNotFound, message: "the resolver found no server within \(timeout)")
            return self.resolved(id, .failure(error), now: now)
        case .racing:
            // The current attempts have had their head start, so one more begins.
            return self.openNext(making, now: now)
        case .handshaking(let handshake):
            return self.handshakeFailed(
                handshake.attempt.id,
                because: self.timeoutError(of: handshake),
                remedy: .tryAnotherServer,
                now: now
            )
        }
    }

    // MARK: Failures

    /// - Parameter isFault: Whether it is held against the server.
    mutating func attemptFailed(
        _ making: Making,
        at endpoint: Endpoint,
        because error: SocketError,
        isFault: Bool = true,
        now: NIODeadline
    ) -> [Action] {
        self.note(error, of: endpoint)
        if isFault, self.canBeReached(endpoint) { self.servers.failed(endpoint, now: now, using: &self.generator) }
        self.proceed(making)
        let report = Action.report(.connectFailed(error))
        if !making.candidates.isEmpty { return [report] + self.openNext(making, now: now) }
        if !making.attempts.isEmpty { return [report] }
        return [report] + self.roundFailed(making, because: error, now: now)
    }

    mutating func note(_ error: SocketError, of endpoint: Endpoint) {
        self.lastError = error
        self.lastErrors[endpoint] = error
    }

    mutating func roundFailed(_ making: Making, because error: SocketError, now: NIODeadline) -> [Action] {
        self.stopMaking()
        self.insists = false
        guard !self.isReady else {
            return [.report(.switchFailed(error))] + self.departureRoundFailed(now: now)
        }
        // Without the servers that are away it was not a whole round.
        if let time = self.servers.nextReturn(besides: making.tried, now: now), self.reasonToHold == nil {
            return self.await(time, after: error, now: now)
        }
        self.failedRounds += 1
        if let limit = self.allowedRounds ?? self.settings.backoff.maximumRounds, self.failedRounds >= limit {
            self.hasRunOut = true
            return self.giveUp(error)
        }
        return self.wait(for: error, now: now)
    }

    /// Stops. `reason` is the error for waiting calls.
    ///
    /// - Parameter isVerdict: Whether the reason alone explains why there is no longer a connection.
    mutating func giveUp(_ reason: SocketError, isVerdict: Bool = false) -> [Action] {
        self.stopMaking()
        self.insists = false
        self.lastError = reason
        guard !self.isReady else {
            // The connection stays as long as it lasts, although no successor will be made for waiting calls.
            self.changeDeparture { $0.starts = .distantFuture }
            return [.report(.switchFailed(reason))]
        }
        self.phase = .closed
        self.alternates = []
        let isVerdict = isVerdict || reason.code == .invalidArgument || reason.code == .handshakeRefused
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

    /// No connection is ready or being made.
    mutating func wait(for error: SocketError, now: NIODeadline) -> [Action] {
        if let reason = self.reasonToHold { return self.hold(reason) }
        let delay = self.nextDelay()
        self.phase = .waiting(Wait(until: now.advanced(clamping: TimeAmount(clamping: delay)), reason: error))
        return [.offline(error), .report(.waiting(delay: delay, reason: error))]
    }

    /// The wait after a round that failed.
    mutating func nextDelay() -> Duration {
        defer { self.failures += 1 }
        return self.settings.backoff.delay(afterFailures: self.failures, using: &self.generator)
    }
}
