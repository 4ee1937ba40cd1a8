// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Events of attempts, and of the handshake of the attempt that won.
extension ConnectionMachine {
    mutating func connected(_ id: ConnectionID, now: NIODeadline) -> [Action] {
        guard var making = self.making, case .racing(let race) = making.stage,
            let winner = race.attempts.first(where: { $0.id == id })
        else { return [.close(id)] }
        let losers = race.attempts.filter { $0.id != id }.map { Action.close($0.id) }
        guard let timeout = self.settings.handshake?.timeout else {
            return losers + self.becomeReady(winner, now: now)
        }
        let until = now.advanced(clamping: TimeAmount(clamping: timeout))
        making.stage = .handshaking(Handshake(attempt: winner, until: until))
        self.proceed(making)
        return losers + [.report(.handshaking(winner.endpoint)), .handshake(id, attempt: self.attempts)]
    }

    /// - Parameter blame: The party at fault.
    mutating func connectFailed(
        _ id: ConnectionID,
        because error: SocketError,
        blame: AttemptFailure.Blame = .server,
        now: NIODeadline
    ) -> [Action] {
        guard var making = self.making, case .racing(var race) = making.stage,
            let index = race.attempts.firstIndex(where: { $0.id == id })
        else { return [] }
        let attempt = race.attempts.remove(at: index)
        making.stage = .racing(race)
        if let time = (error.underlying as? WebSocketRefusal)?.retryAfter {
            self.servers.postpone(attempt.endpoint, until: now.advanced(clamping: TimeAmount(clamping: time)))
        }
        switch blame {
        case .server:
            return self.attemptFailed(making, at: attempt.endpoint, because: error, now: now)
        case .network:
            return self.attemptFailed(making, at: attempt.endpoint, because: error, isFault: false, now: now)
        case .application(let remedy):
            guard remedy != .tryAnotherServer else {
                return self.attemptFailed(making, at: attempt.endpoint, because: error, isFault: false, now: now)
            }
            // The others would meet the same.
            let others = race.attempts.map { Action.close($0.id) }
            making.stage = .racing(Race())
            self.proceed(making)
            return others + self.refused(making, by: attempt.endpoint, because: error, remedy: remedy, now: now)
        }
    }

    /// Whether the gate waits for the answer to hello from here on.
    mutating func handshakeAwaitsHello(_ awaits: Bool) {
        guard var making = self.making, case .handshaking(var handshake) = making.stage else { return }
        handshake.awaitsHello = awaits
        making.stage = .handshaking(handshake)
        self.proceed(making)
    }

    mutating func handshakeSucceeded(_ id: ConnectionID, now: NIODeadline) -> [Action] {
        guard let (_, attempt) = self.handshake(of: id) else { return [] }
        return self.becomeReady(attempt, now: now)
    }

    mutating func handshakeFailed(
        _ id: ConnectionID,
        because error: SocketError,
        remedy: HandshakeRefusal.Remedy,
        now: NIODeadline
    ) -> [Action] {
        guard case (var making, let attempt)? = self.handshake(of: id) else { return [] }
        making.stage = .racing(Race())
        self.proceed(making)
        return [.close(id)] + self.refused(making, by: attempt.endpoint, because: error, remedy: remedy, now: now)
    }

    private mutating func refused(
        _ making: Making,
        by endpoint: Endpoint,
        because error: SocketError,
        remedy: HandshakeRefusal.Remedy,
        now: NIODeadline
    ) -> [Action] {
        switch remedy {
        case .tryAnotherServer:
            return self.attemptFailed(making, at: endpoint, because: error, now: now)
        case .trySameServer:
            // Not the server's fault, so it does not affect the score; and no other server is tried before it.
            self.note(error, of: endpoint)
            self.servers.prefer(endpoint)
            return [.report(.connectFailed(error))] + self.roundFailed(making, because: error, now: now)
        case .stop:
            self.note(error, of: endpoint)
            return [.report(.connectFailed(error))] + self.giveUp(error)
        }
    }

    func timeoutError(of handshake: Handshake) -> SocketError {
        let (timeout, failure) = self.settings.handshake.map { ($0.timeout, $0.failure) } ?? (.zero, "it is over")
        let why =
            handshake.awaitsHello
            ? """
            the server did not answer hello within \(timeout) (HelloPolicy.timeout); one that does not know hello may \
            leave it unanswered, so turn hello off for such servers
            """
            : failure
        let endpoint = handshake.attempt.endpoint
        return SocketError(
            .handshakeTimeout,
            message: "cannot use the connection to \(endpoint): \(why)",
            endpoint: endpoint
        )
    }

    private mutating func becomeReady(_ attempt: Attempt, now: NIODeadline) -> [Action] {
        let predecessor = self.ready
        self.phase = .ready(
            Ready(connection: Connection(id: attempt.id, endpoint: attempt.endpoint, since: now))
        )
        self.alternates = []
        self.attempts = 0
        self.failedRounds = 0
        self.allowedRounds = nil
        self.insists = false
        self.lastErrors = [:]
        // Earlier errors are unrelated to those from now on.
        self.lastError = nil
        let (id, endpoint) = (attempt.id, attempt.endpoint)
        guard let predecessor else { return [.ready(id, endpoint), .report(.connected(endpoint))] }
        let previous = predecessor.connection
        // A departing connection was judged at its departure.
        if predecessor.departure == nil { self.judge(previous, now: now) }
        self.draining.insert(previous.id)
        let report = SocketEvent.switched(from: previous.endpoint, to: endpoint)
        return [.ready(id, endpoint), .drain(previous.id), .report(report)]
    }
}
