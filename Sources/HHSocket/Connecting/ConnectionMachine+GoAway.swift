// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Servers that announce their shutdown: the client fails over to another one before that, and tries them again at the
/// announced time.
///
/// All clients of a server are notified at the same time. So that they do not reach the next server together, a client
/// without work leaves at a random time before the announced one; a call makes the client leave at once.
extension ConnectionMachine {
    /// The server of a connection is about to end.
    ///
    /// - Parameter isAnnounced: Whether it sent a go-away; false if only its answers show it.
    mutating func goAway(
        _ id: ConnectionID,
        _ news: GoAway,
        isAnnounced: Bool,
        now: NIODeadline
    ) -> [Action] {
        if let (making, attempt) = self.handshake(of: id) {
            return self.refused(making, attempt: attempt, because: news, now: now)
        }
        guard let ready = self.ready, ready.connection.id == id else { return [] }
        let connection = ready.connection
        let isKnown = ready.departure != nil
        if let known = ready.departure, known.isAnnounced || !isAnnounced { return [] }
        if !isKnown { self.judge(connection, now: now) }
        let span = self.servers.recordGoAway(
            connection.endpoint,
            for: news.retryAfter,
            again: isKnown,
            now: now,
            using: &self.generator
        )
        self.alternates = self.usable(news.endpoints, namedBy: connection.endpoint)
        // The list does not change during a round; the next one begins with them.
        if ready.successor == nil { self.addAlternates(self.alternates) }
        self.servers.passOver(connection.endpoint)
        let departure = self.noteDeparture(isAnnounced: isAnnounced, now: now)
        var actions: [Action] = [
            .report(.goAway(connection.endpoint, reason: news.reason, retryAfter: span))
        ]
        if !isKnown { actions.append(.goAway(id)) }
        // A successor may be in progress already, or be deferred for another reason.
        guard ready.successor == nil, departure?.failedRounds == 0 else { return actions }
        return actions + self.scheduleDeparture(within: span, now: now)
    }

    /// Notes that the ready connection's server is about to end.
    private mutating func noteDeparture(isAnnounced: Bool, now: NIODeadline) -> PendingDeparture? {
        guard case .ready(var ready) = self.phase else { return nil }
        let age = Duration(now - ready.connection.since)
        var departure =
            ready.departure
            ?? PendingDeparture(
                isAnnounced: isAnnounced,
                wasStable: age >= self.settings.backoff.resetAfter,
                failuresBefore: self.failures
            )
        departure.isAnnounced = isAnnounced
        ready.departure = departure
        ready.successor?.exclude(ready.connection.endpoint)
        self.phase = .ready(ready)
        return departure
    }

    /// A server is about to end before its connection is ready.
    private mutating func refused(
        _ making: Making,
        attempt: Attempt,
        because news: GoAway,
        now: NIODeadline
    ) -> [Action] {
        let span = self.servers.recordGoAway(
            attempt.endpoint,
            for: news.retryAfter,
            now: now,
            using: &self.generator
        )
        var making = making
        making.stage = .racing(Race())
        making.exclude(attempt.endpoint)
        self.proceed(making)
        // The connection was never used, so a call does not cause an earlier attempt.
        self.servers.forbidEarlyRetry(attempt.endpoint)
        self.addAlternates(self.usable(news.endpoints, namedBy: attempt.endpoint))
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
        return actions + self.attemptFailed(making, at: attempt.endpoint, because: error, isFault: false, now: now)
    }

    /// The servers that one names, as far as they may be used.
    private func usable(_ endpoints: [Endpoint], namedBy server: Endpoint) -> [Endpoint] {
        var seen: Set<Endpoint> = [server]
        return endpoints.prefix(GoAway.maximumEndpoints).filter { endpoint in
            let mayBeUsed =
                self.servers.acceptsAlternates && endpoint.unixPath == nil
                && self.settings.addressFamilies.allow(endpoint)
            return seen.insert(endpoint).inserted && (mayBeUsed || self.servers.contains(endpoint))
        }
    }

    /// Adds the new ones among these servers. If that is not allowed, none of them is new, since they were found
    /// usable.
    mutating func addAlternates(_ endpoints: [Endpoint]) {
        guard self.servers.acceptsAlternates, !endpoints.isEmpty else { return }
        self.servers.add(alternates: endpoints, keeping: self.current?.endpoint)
    }

    // MARK: When the successor is made

    /// The time at which the next round for the successor of a departing connection begins; nil if none begins
    /// automatically.
    var departureDeadline: NIODeadline? {
        guard let starts = self.ready?.departure?.starts, starts < .distantFuture else { return nil }
        return self.reasonToHold == nil ? starts : nil
    }

    mutating func changeDeparture(_ change: (inout PendingDeparture) -> Void) {
        guard case .ready(var ready) = self.phase, var departure = ready.departure else { return }
        change(&departure)
        ready.departure = departure
        self.phase = .ready(ready)
    }

    /// Sets when the next round begins for the successor, unless a call wants it sooner.
    private mutating func departAt(_ time: NIODeadline) -> [Action] {
        self.changeDeparture {
            $0.starts = time
            $0.isPulledForward = false
        }
        return [.reconnectDeferred]
    }

    private mutating func scheduleDeparture(within span: Duration, now: NIODeadline) -> [Action] {
        guard self.servers.hasPresent(now: now) else {
            return self.departAt(self.servers.nextReturn(now: now) ?? .distantFuture)
        }
        let share = Double.random(in: 0...1, using: &self.generator)
        return self.departAt(now.advanced(clamping: TimeAmount(.seconds(span.inSeconds * share))))
    }

    /// Makes the successor at once, if there is a server for it, because the reason for waiting no longer holds.
    mutating func departNow(now: NIODeadline) -> [Action] {
        guard self.ready?.departure != nil, self.reasonToHold == nil else { return [] }
        guard !self.servers.hasPresent(now: now) else { return self.startMaking(now: now) }
        return self.departAt(self.servers.nextReturn(now: now) ?? .distantFuture)
    }

    /// Makes the successor at a random time within the next second; at once if something is in flight.
    mutating func departSoon(now: NIODeadline) -> [Action] {
        guard self.ready?.departure != nil, self.reasonToHold == nil, self.servers.hasPresent(now: now) else {
            return self.departNow(now: now)
        }
        return self.departAt(self.soonest(isCall: false, now: now))
    }

    /// A call waits for the successor of the departing connection.
    mutating func departSooner(now: NIODeadline) -> [Action] {
        guard let ready = self.ready, ready.successor == nil, let departure = ready.departure,
            !departure.isPulledForward, self.departureDeadline != nil
        else { return [] }
        if departure.failedRounds == 0, self.servers.hasPresent(now: now) { return self.startMaking(now: now) }
        // In a long outage calls do not shorten the back-off.
        if departure.failedRounds > 0, self.isBackedOff { return [] }
        let soonest = self.soonest(now: now)
        self.changeDeparture {
            $0.starts = min($0.starts, soonest)
            $0.isPulledForward = true
        }
        return []
    }

    /// The time to which a call moves the next round: a random one within the next second, if there is a server that is
    /// not away.
    mutating func soonest(isCall: Bool = true, now: NIODeadline) -> NIODeadline {
        let share = Double.random(in: 0...1, using: &self.generator)
        let hasPresent = self.servers.isEmpty || self.servers.hasPresent(now: now)
        if isCall { self.servers.retryEarly(share, now: now) }
        let time = self.servers.nextReturn(now: now)
        guard hasPresent else { return time ?? now }
        let moment = now + .nanoseconds(Int64(share * 1e9))
        return min(moment, time ?? moment)
    }

    // MARK: Rounds that fail

    /// No successor could be made; the departing connection still exists.
    mutating func departureRoundFailed(now: NIODeadline) -> [Action] {
        guard self.ready?.departure != nil else { return [] }
        let moment = now.advanced(clamping: TimeAmount(clamping: self.nextDelay()))
        self.changeDeparture { $0.failedRounds += 1 }
        return self.departAt(min(moment, self.servers.nextReturn(now: now) ?? moment))
    }

    /// All servers are away: the round begins when the first of them may be tried.
    mutating func awaitReturn(until time: NIODeadline) -> [Action] {
        self.stopMaking()
        guard let ready = self.ready else {
            return self.waitForReturn(until: time, reason: self.lastError ?? Self.allAway(nil))
        }
        guard ready.departure != nil else { return [.report(.switchFailed(Self.allAway(self.lastError)))] }
        return self.departAt(time)
    }

    /// A round has failed in which servers that are away were not tried.
    mutating func await(_ time: NIODeadline, after error: SocketError, now: NIODeadline) -> [Action] {
        let delay = self.nextDelay()
        let moment = min(time, now.advanced(clamping: TimeAmount(clamping: delay)))
        return [.report(.waiting(delay: Duration(moment - now), reason: error))]
            + self.waitForReturn(until: moment, reason: error)
    }

    /// Waits without being offline: calls that wait for a connection are not notified.
    private mutating func waitForReturn(until time: NIODeadline, reason: SocketError) -> [Action] {
        self.phase = .waiting(Wait(until: time, reason: reason, isForReturn: true))
        return [.reconnectDeferred]
    }

    private static func allAway(_ underlying: SocketError?) -> SocketError {
        SocketError(
            .notConnected,
            message: "every server has said that it goes away; they are tried again at the announced times",
            underlying: underlying
        )
    }
}
