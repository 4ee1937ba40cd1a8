import NIOCore

/// Names one attempt and the connection that came of it. News of any but the present one is stale.
struct AttemptID: Hashable, Sendable {
    var number: UInt64
}

/// Decides when to connect, where, and when to stop. It is told what happened and the time, and answers with what to do;
/// it has no clock, no randomness of its own and no I/O, so every race is tested in virtual time.
///
/// Offline by the user (`closed`) and offline by loss (`waiting`) are different: only loss reconnects.
struct ConnectionMachine<Generator: RandomNumberGenerator & Sendable>: Sendable {
    enum Action: Sendable {
        /// Open a connection; report ``connected(_:now:)`` or ``connectFailed(_:_:now:)``.
        case open(AttemptID, Endpoint)
        /// Close the connection or abandon the attempt. What is queued may leave first. No report is owed.
        case close(AttemptID)
        /// Call ``timerFired(now:)`` at this time, instead of any other.
        case setTimer(NIODeadline)
        case cancelTimer
        /// Tell the user.
        case report(SocketEvent)
        /// Calls may leave.
        case ready(Endpoint)
        /// The connection that was ready is no more.
        case lost(SocketError)
        /// Nothing is ready and no attempt is in progress.
        case offline(SocketError)
    }

    private struct Round {
        var servers: ArraySlice<Endpoint>
        var current: Endpoint
        var attempt: AttemptID
    }

    private enum Phase {
        case idle
        case connecting(Round)
        case ready(AttemptID, Endpoint, since: NIODeadline)
        case waiting(until: NIODeadline, reason: SocketError, pulledForward: Bool)
        case closed
    }

    private let backoff: Backoff
    private var generator: Generator
    private var servers: ServerList
    private var phase = Phase.idle
    private var nextAttempt: UInt64 = 1
    /// Rounds and losses in a row without a stable connection: the back-off's exponent.
    private var failures = 0
    /// Whole rounds since the last ready connection: what the limit counts.
    private var failedRounds = 0
    /// Attempts since the last ready connection.
    private var attempts = 0
    private(set) var lastError: SocketError?

    init(servers: [Endpoint], backoff: Backoff, generator: Generator) {
        self.servers = ServerList(servers)
        self.backoff = backoff
        self.generator = generator
    }

    var state: SocketState {
        switch self.phase {
        case .idle: .idle
        case .connecting(let round): .connecting(round.current, attempt: self.attempts)
        case .ready(_, let endpoint, _): .ready(endpoint)
        case .waiting(let until, let reason, _): .waiting(until: until, reason: reason)
        case .closed: .closed
        }
    }

    // MARK: The user

    mutating func connect(now: NIODeadline) -> [Action] {
        switch self.phase {
        case .connecting, .ready:
            return []
        case .idle, .closed:
            self.failures = 0
            self.failedRounds = 0
            return self.startRound()
        case .waiting:
            return [.cancelTimer] + self.startRound()
        }
    }

    mutating func disconnect(now: NIODeadline) -> [Action] {
        defer { self.phase = .closed }
        switch self.phase {
        case .closed:
            return []
        case .idle:
            return [.report(.closed)]
        case .connecting(let round):
            return [.close(round.attempt), .offline(Self.closedByUser(round.current)), .report(.closed)]
        case .ready(let attempt, let endpoint, _):
            let error = Self.closedByUser(endpoint)
            return [.lost(error), .close(attempt), .offline(error), .report(.closed)]
        case .waiting:
            return [.cancelTimer, .report(.closed)]
        }
    }

    /// Leaves the present server for `endpoint`, or for the next best one.
    mutating func switchServer(to endpoint: Endpoint?, now: NIODeadline) -> [Action] {
        if let endpoint { self.servers.prefer(endpoint) }
        switch self.phase {
        case .idle, .closed:
            return []
        case .waiting:
            return [.cancelTimer] + self.startRound()
        case .connecting(let round):
            if endpoint == round.current { return [] }
            if endpoint == nil { self.servers.passOver(round.current) }
            return [.close(round.attempt)] + self.startRound()
        case .ready(let attempt, let current, _):
            if endpoint == current { return [] }
            if endpoint == nil { self.servers.passOver(current) }
            let error = SocketError(
                .connectionLost,
                message: "the connection to \(current) was left for another server by request",
                endpoint: current
            )
            return [.lost(error), .close(attempt), .report(.disconnected(error))] + self.startRound()
        }
    }

    /// A call would like to leave: the first in a wait pulls the next round forward to a random moment of the next
    /// second, later ones change nothing.
    mutating func pullForward(now: NIODeadline) -> [Action] {
        guard case .waiting(let until, let reason, pulledForward: false) = self.phase else { return [] }
        let wait = Double.random(in: 0...1, using: &self.generator)
        let sooner = min(until, now + .nanoseconds(Int64(wait * 1e9)))
        self.phase = .waiting(until: sooner, reason: reason, pulledForward: true)
        return [.setTimer(sooner)]
    }

    // MARK: The network

    mutating func connected(_ attempt: AttemptID, now: NIODeadline) -> [Action] {
        guard case .connecting(let round) = self.phase, round.attempt == attempt else { return [.close(attempt)] }
        self.phase = .ready(attempt, round.current, since: now)
        self.attempts = 0
        self.failedRounds = 0
        return [.ready(round.current), .report(.connected(round.current))]
    }

    mutating func connectFailed(_ attempt: AttemptID, _ error: SocketError, now: NIODeadline) -> [Action] {
        guard case .connecting(let round) = self.phase, round.attempt == attempt else { return [] }
        self.lastError = error
        self.servers.failed(round.current)
        let report = Action.report(.connectFailed(error))
        if !round.servers.isEmpty { return [report] + self.attempt(round.servers) }
        self.failedRounds += 1
        if let limit = self.backoff.maximumRounds, self.failedRounds >= limit {
            self.phase = .closed
            return [report, .offline(error), .report(.gaveUp(error))]
        }
        return [report] + self.wait(for: error, now: now)
    }

    /// A ready connection ended without our doing.
    mutating func connectionLost(_ attempt: AttemptID, _ error: SocketError, now: NIODeadline) -> [Action] {
        guard case .ready(attempt, let endpoint, let since) = self.phase else { return [] }
        self.lastError = error
        if Duration(now - since) >= self.backoff.resetAfter {
            self.failures = 0
            self.servers.proved(endpoint)
        }
        self.servers.failed(endpoint)
        return [.lost(error), .report(.disconnected(error))] + self.wait(for: error, now: now)
    }

    mutating func timerFired(now: NIODeadline) -> [Action] {
        guard case .waiting(let until, _, _) = self.phase else { return [] }
        return now < until ? [.setTimer(until)] : self.startRound()
    }

    // MARK: Pieces

    private mutating func startRound() -> [Action] {
        let servers = self.servers.round()
        guard !servers.isEmpty else {
            let error = SocketError(
                .invalidArgument,
                message: "there is no server to connect to; put at least one into the configuration's list"
            )
            self.lastError = error
            self.phase = .closed
            return [.offline(error), .report(.gaveUp(error))]
        }
        return self.attempt(servers[...])
    }

    private mutating func attempt(_ servers: ArraySlice<Endpoint>) -> [Action] {
        guard let endpoint = servers.first else { return [] }
        let attempt = AttemptID(number: self.nextAttempt)
        self.nextAttempt += 1
        self.attempts += 1
        self.phase = .connecting(Round(servers: servers.dropFirst(), current: endpoint, attempt: attempt))
        return [.report(.connecting(endpoint, attempt: self.attempts)), .open(attempt, endpoint)]
    }

    private mutating func wait(for error: SocketError, now: NIODeadline) -> [Action] {
        let delay = self.backoff.delay(afterFailures: self.failures, using: &self.generator)
        self.failures += 1
        let until = now.advanced(clamping: TimeAmount(delay))
        self.phase = .waiting(until: until, reason: error, pulledForward: false)
        return [.offline(error), .setTimer(until), .report(.waiting(delay: delay, reason: error))]
    }

    private static func closedByUser(_ endpoint: Endpoint) -> SocketError {
        SocketError(.cancelled, message: "the connection to \(endpoint) was closed by disconnect()", endpoint: endpoint)
    }
}
