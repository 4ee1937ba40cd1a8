import NIOCore

/// Servers that say that they are about to end: they are left for another before they do, and are tried again when the
/// time has come that they said.
///
/// Clients of one server are notified at the same moment. So that they do not arrive at the next one together, whoever
/// has nothing to send leaves at a random moment before that time; a call is what makes a client leave at once.
extension ConnectionMachine {
    /// The server of a connection goes away.
    ///
    /// - Parameter isAnnounced: Whether it says so by go-away, and not only by how it answers.
    mutating func goAway(
        _ id: ConnectionID,
        _ news: ServerDeparture,
        isAnnounced: Bool,
        now: NIODeadline
    ) -> [Action] {
        if case .handshaking(let attempt, _) = self.making?.stage, attempt.id == id {
            return self.refused(attempt, news, now: now)
        }
        guard case .ready(let connection) = self.phase, connection.id == id else { return [] }
        let isKnown = self.departure?.id == id
        if isKnown, self.departure?.isAnnounced == true || !isAnnounced { return [] }
        if !isKnown { self.judge(connection, now: now) }
        let wasStable = Duration(now - connection.since) >= self.settings.backoff.resetAfter
        let span = self.servers.wentAway(
            connection.endpoint,
            for: news.retryAfter,
            again: isKnown,
            now: now,
            using: &self.generator
        )
        var departure =
            self.departure
            ?? Departure(id: id, isAnnounced: isAnnounced, wasStable: wasStable, failuresBefore: self.failures)
        departure.isAnnounced = isAnnounced
        departure.others = self.usable(news.endpoints, namedBy: connection.endpoint)
        self.departure = departure
        // While a round is under way the list stays; the next one begins with them.
        if self.making == nil { self.take(hearsay: departure.others) }
        self.servers.passOver(connection.endpoint)
        self.doNotTry(connection.endpoint)
        var actions: [Action] = [
            .report(.goAway(connection.endpoint, reason: news.reason, retryAfter: span))
        ]
        if !isKnown { actions.append(.leave(id)) }
        // A successor may be under way already, or be put off for another reason.
        guard self.making == nil, departure.failedRounds == 0 else { return actions }
        return actions + self.scheduleDeparture(within: span, now: now)
    }

    /// A server that goes away before its connection is ready.
    private mutating func refused(_ attempt: Attempt, _ news: ServerDeparture, now: NIODeadline) -> [Action] {
        self.making?.stage = .connecting
        let span = self.servers.wentAway(
            attempt.endpoint,
            for: news.retryAfter,
            now: now,
            using: &self.generator
        )
        self.doNotTry(attempt.endpoint)
        // It was never of use, so no call has it tried sooner.
        self.servers.doNotHurry(attempt.endpoint)
        self.take(hearsay: self.usable(news.endpoints, namedBy: attempt.endpoint))
        let reason = news.reason.isEmpty ? "" : ": \(news.reason)"
        let error = SocketError(
            .draining,
            message: "cannot use the connection to \(attempt.endpoint): the server goes away\(reason)",
            endpoint: attempt.endpoint
        )
        let actions: [Action] = [
            .close(attempt.id), .report(.goAway(attempt.endpoint, reason: news.reason, retryAfter: span)),
        ]
        // Whether to try without a network depends on the list.
        if let reason = self.reasonToHold { return actions + self.stopAttempts(reason) }
        return actions
            + self.attemptFailed(attempt.endpoint, error, isFault: false, now: now)
    }

    /// In the round that is under way.
    private mutating func doNotTry(_ endpoint: Endpoint) {
        if self.making?.target == endpoint { self.making?.target = nil }
        self.making?.candidates.removeAll { $0 == endpoint }
    }

    /// The servers that one names, as far as they may be used.
    private func usable(_ endpoints: [Endpoint], namedBy server: Endpoint) -> [Endpoint] {
        var seen: Set<Endpoint> = [server]
        return endpoints.prefix(ServerDeparture.maximumEndpoints).filter { endpoint in
            let mayBeUsed = self.servers.acceptsHearsay && endpoint.unixPath == nil
            return seen.insert(endpoint).inserted && (mayBeUsed || self.servers.contains(endpoint))
        }
    }

    /// Adds those of them that are new. None are where that is not allowed, for they have been found usable.
    mutating func take(hearsay endpoints: [Endpoint]) {
        guard self.servers.acceptsHearsay, !endpoints.isEmpty else { return }
        self.servers.add(hearsay: endpoints, keeping: self.current?.endpoint)
    }

    // MARK: When the successor is made

    /// When the next round begins for the successor of a connection that is left; nil if none does by itself.
    var departureDeadline: NIODeadline? {
        guard self.isReady, let starts = self.departure?.starts, starts < .distantFuture else { return nil }
        return self.reasonToHold == nil ? starts : nil
    }

    private mutating func scheduleDeparture(within span: Duration, now: NIODeadline) -> [Action] {
        self.departure?.isPulledForward = false
        if self.servers.hasPresent(now: now) {
            let share = Double.random(in: 0...1, using: &self.generator)
            self.departure?.starts = now.advanced(clamping: TimeAmount(.seconds(span.inSeconds * share)))
        } else {
            self.departure?.starts = self.servers.nextReturn(now: now) ?? .distantFuture
        }
        return [.putOff]
    }

    /// What keeps a departure waiting has changed: the successor is made at once, if there is a server for it.
    mutating func leaveAtOnce(now: NIODeadline) -> [Action] {
        guard self.isReady, self.departure != nil, self.reasonToHold == nil else { return [] }
        guard !self.servers.hasPresent(now: now) else { return self.startMaking(now: now) }
        self.departure?.starts = self.servers.nextReturn(now: now) ?? .distantFuture
        self.departure?.isPulledForward = false
        return [.putOff]
    }

    /// A call would like to leave, and the connection that is ready is left.
    mutating func pullDepartureForward(now: NIODeadline) -> [Action] {
        guard let departure = self.departure, self.making == nil, !departure.isPulledForward,
            self.departureDeadline != nil
        else { return [] }
        if departure.failedRounds == 0, self.servers.hasPresent(now: now) { return self.startMaking(now: now) }
        let soonest = self.soonest(now: now)
        self.departure?.starts = min(departure.starts, soonest)
        self.departure?.isPulledForward = true
        return []
    }

    /// The moment to which a call pulls the next round forward: a random one of the next second, if there is a server
    /// that is not away.
    mutating func soonest(isCall: Bool = true, now: NIODeadline) -> NIODeadline {
        let share = Double.random(in: 0...1, using: &self.generator)
        let hasPresent = self.servers.isEmpty || self.servers.hasPresent(now: now)
        if isCall { self.servers.hurry(share, now: now) }
        let time = self.servers.nextReturn(now: now)
        guard hasPresent else { return time ?? now }
        let moment = now + .nanoseconds(Int64(share * 1e9))
        return min(moment, time ?? moment)
    }

    // MARK: What becomes of it

    /// No successor could be made; the connection that is left is still there.
    mutating func departureRoundFailed(now: NIODeadline) -> [Action] {
        guard self.departure != nil else { return [] }
        let moment = now.advanced(clamping: TimeAmount(clamping: self.nextDelay()))
        self.departure?.starts = min(moment, self.servers.nextReturn(now: now) ?? moment)
        self.departure?.isPulledForward = false
        self.departure?.failedRounds += 1
        return [.putOff]
    }

    /// All servers are away: the round begins when the first of them may be tried.
    mutating func awaitReturn(until time: NIODeadline) -> [Action] {
        self.making = nil
        guard !self.isReady else {
            self.departure?.starts = time
            self.departure?.isPulledForward = false
            guard self.departure == nil else { return [.putOff] }
            return [.report(.switchFailed(Self.allAway(self.lastError)))]
        }
        let reason = self.lastError ?? Self.allAway(nil)
        return self.wait(until: time, reason: reason)
    }

    /// A round has failed in which servers that are away were not tried.
    mutating func await(_ time: NIODeadline, after error: SocketError, now: NIODeadline) -> [Action] {
        let delay = self.nextDelay()
        let moment = min(time, now.advanced(clamping: TimeAmount(clamping: delay)))
        return [.report(.waiting(delay: Duration(moment - now), reason: error))]
            + self.wait(until: moment, reason: error)
    }

    /// Waits without being offline: those who wait for a connection need not know.
    private mutating func wait(until time: NIODeadline, reason: SocketError) -> [Action] {
        self.phase = .waiting(until: time, reason: reason, pulledForward: false)
        self.isWaitingForReturn = true
        return [.putOff]
    }

    private static func allAway(_ underlying: SocketError?) -> SocketError {
        SocketError(
            .notConnected,
            message: "every server has said that it goes away; they are tried again when they said",
            underlying: underlying
        )
    }

    /// The connection that was left is lost before it had a successor. That is no fault of the server's.
    mutating func leftConnectionLost(
        _ connection: Connection,
        _ error: SocketError,
        now: NIODeadline
    ) -> [Action] {
        // One that takes connections only to send them away is not called any sooner than it wants.
        if self.departure?.wasStable == false { self.servers.doNotHurry(connection.endpoint) }
        // Rounds that failed while the server was ending say nothing of the one that takes its place.
        if let before = self.departure?.failuresBefore { self.failures = min(self.failures, before) }
        let actions: [Action] = [.lost(connection.id, error), .report(.disconnected(error))]
        if self.making != nil {
            self.phase = .making
            return actions + [.beingMade]
        }
        guard self.reasonToHold == nil else { return actions + self.wait(for: error, now: now) }
        self.phase = .idle
        return actions + self.startMaking(now: now)
    }
}
