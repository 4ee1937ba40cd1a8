import NIOCore

/// Decides when to connect, where, and when to stop. Takes events and the time, and answers with what to
/// do; it has no clock, no randomness of its own and no I/O, so every race is tested in virtual time.
///
/// Offline by the user (`closed`) and offline by loss (`waiting`) are different: only loss reconnects. News of any
/// connection but the present ones is stale and does nothing.
///
/// The user's wishes are in this file; `+Making` makes connections, `+News` takes what is heard of them, `+GoAway`
/// leaves servers that are about to end.
struct ConnectionMachine<Generator: RandomNumberGenerator & Sendable>: Sendable {
    struct Settings: Sendable {
        var backoff = Backoff()
        var racing: RacingPolicy?
        /// How long the handshake gate may take; nil where there is none.
        var gateTimeout: Duration?
        /// How long the resolver may take; nil where there is none.
        var resolverTimeout: Duration?
        var background = BackgroundPolicy.finishTasks
        /// Where the proxy is that all servers but Unix domain sockets are reached through; nil where there is none.
        var proxy: Endpoint?
        /// Whether a successor is made while the connection that is left is still there; else that is closed first, for
        /// there are never two.
        var linksMayOverlap = true
    }

    enum Action: Sendable {
        /// Ask the resolver; report ``resolved(_:_:now:)``.
        case resolve(ConnectionID)
        /// Open a connection; report ``connected(_:now:)`` or ``connectFailed(_:_:now:)``.
        case open(ConnectionID, Endpoint)
        /// Run the handshake gate; report ``handshakeSucceeded(_:now:)`` or ``handshakeFailed(_:_:_:now:)``.
        case shakeHands(ConnectionID, Endpoint, attempt: Int)
        /// Close the connection, or abandon the attempt or the handshake. What is queued may leave first. No report is
        /// owed.
        case close(ConnectionID)
        /// Calls may leave, by this connection.
        case ready(ConnectionID, Endpoint)
        /// The connection is left for another, and may not overlap with it: close it, and tell that it is lost once it
        /// is gone.
        case part(ConnectionID, SocketError)
        /// The connection has a successor: let it finish what is in flight, close it, and report ``drained(_:)``.
        case drain(ConnectionID)
        /// The server of the ready connection is about to end: calls wait for a successor, which will be made.
        case leave(ConnectionID)
        /// The next round begins later, by itself; whoever waits for it calls ``pullForward(now:)``. The last of its
        /// actions.
        case putOff
        /// The connection that was ready, or draining, is no more.
        case lost(ConnectionID, SocketError)
        /// Nothing is ready, and a connection is being made.
        case beingMade
        /// Nothing is ready and nothing is being made.
        case offline(SocketError)
        /// Find out at once whether the connection still lives; report ``connectionLost(_:_:now:)`` if it does not.
        case probe(ConnectionID)
        case pauseHeartbeat(ConnectionID)
        case resumeHeartbeat(ConnectionID)
        /// Whether the app is in the foreground: what the heartbeat's strategy wants to know.
        case applicationIsActive(Bool)
        /// Tell the user.
        case report(SocketEvent)
    }

    struct Attempt: Sendable {
        var id: ConnectionID
        var endpoint: Endpoint
    }

    /// A connection that is being made: the first, the next, or a successor.
    struct Making: Sendable {
        enum Stage: Sendable {
            case resolving(ConnectionID, until: NIODeadline)
            /// Attempts are in progress, or about to begin.
            case connecting
            case handshaking(Attempt, until: NIODeadline)
        }

        var stage = Stage.connecting
        /// The server the user asked for.
        var target: Endpoint?
        /// The server the user wants to leave.
        var avoided: Endpoint?
        /// Servers of this round that were not tried yet.
        var candidates: ArraySlice<Endpoint> = []
        /// Servers of this round that were.
        var tried: Set<Endpoint> = []
        /// In progress, oldest first.
        var attempts: [Attempt] = []
        /// When one more attempt joins the race.
        var nextStart: NIODeadline?
    }

    struct Connection: Sendable {
        var id: ConnectionID
        var endpoint: Endpoint
        var since: NIODeadline
        /// The path below changed, or the app slept, since it was proved alive: if it is dead there is no reason to
        /// wait.
        var isSuspect = false
    }

    /// A ready connection whose server is about to end, until it has a successor.
    struct Departure: Sendable {
        /// The connection that is left.
        var id: ConnectionID
        /// The servers to use instead that it has named, best first, as far as they may be used.
        var others: [Endpoint] = []
        /// Whether it said so by go-away, which has all that is known of it.
        var isAnnounced: Bool
        /// Whether the connection had been ready for long enough to tell well of its server.
        var wasStable: Bool
        /// ``ConnectionMachine/failures`` when it began.
        var failuresBefore: Int
        /// When the next round begins while none is under way; `.distantFuture` if none does.
        var starts = NIODeadline.distantFuture
        var isPulledForward = false
        var failedRounds = 0
    }

    enum Phase: Sendable {
        case idle
        case making
        case ready(Connection)
        case waiting(until: NIODeadline, reason: SocketError, pulledForward: Bool)
        /// Without a network that is needed, or in the background: until there is news.
        case held(SocketError)
        case closed
    }

    let settings: Settings
    var generator: Generator
    var servers: ServerList
    var phase = Phase.idle
    /// Set in phase `making`, and in phase `ready` while a successor is being made.
    var making: Making?
    /// Set from when the server of the ready connection is about to end, until there is a successor.
    var departure: Departure?
    /// Whether the floor above takes the present wait for a connection being made: servers that said that they go away
    /// are to be tried at its end.
    var isWaitingForReturn = false
    /// Connections that have a successor and still finish what is in flight.
    var draining: Set<ConnectionID> = []
    var nextID: UInt64 = 1
    var isReachable = true
    var isInBackground = false
    /// Waits in a row without a stable connection: the back-off's exponent.
    var failures = 0
    /// Whole rounds since the last ready connection: what the limit counts.
    var failedRounds = 0
    /// How many may fail, where ``connect(attempts:now:)`` said so.
    var allowedRounds: Int?
    /// Attempts since the last ready connection.
    var attempts = 0
    /// Why each server could not be reached since the last ready connection.
    var lastErrors: [Endpoint: SocketError] = [:]
    var lastError: SocketError?
    /// Whether the user has asked for a connection: it is tried once, also where the monitor says that there is no
    /// network.
    var insists = false
    /// Whether the gate waits for the answer to hello: what is said when its time is up.
    var awaitsHello = false

    init(
        servers: [Endpoint],
        policy: ServerPolicy = ServerPolicy(),
        settings: Settings = Settings(),
        generator: Generator
    ) {
        self.servers = ServerList(servers, policy: policy)
        self.settings = settings
        self.generator = generator
    }

    var state: SocketState {
        switch self.phase {
        case .idle: .idle
        case .making: self.makingState
        case .ready(let connection): .ready(connection.endpoint)
        case .waiting(let until, let reason, _): .waiting(until: until, reason: reason)
        case .held(let reason): .waiting(until: .distantFuture, reason: reason)
        case .closed: .closed
        }
    }

    private var makingState: SocketState {
        guard let making = self.making else { return .idle }
        switch making.stage {
        case .resolving: return .resolving
        case .handshaking(let attempt, _): return .handshaking(attempt.endpoint)
        case .connecting:
            guard let latest = making.attempts.last else { return .resolving }
            return .connecting(latest.endpoint, attempt: self.attempts)
        }
    }

    /// When to call ``timerFired(now:)`` if nothing happens before; ask again after each event.
    var nextDeadline: NIODeadline? {
        if case .waiting(let until, _, _) = self.phase { return until }
        switch self.making?.stage {
        case nil: return self.departureDeadline
        case .resolving(_, let until), .handshaking(_, let until): return until
        case .connecting: return self.making?.nextStart
        }
    }

    // MARK: The user

    /// - Parameter attempts: The number of rounds without a ready connection after which it stops; nil: what the
    ///   back-off says.
    mutating func connect(attempts: Int? = nil, now: NIODeadline) -> [Action] {
        switch self.phase {
        case .making, .ready:
            return []
        case .idle, .closed:
            self.failures = 0
            self.lastErrors = [:]
        case .waiting, .held:
            break
        }
        self.allowedRounds = attempts.map { max(1, $0) }
        self.failedRounds = 0
        self.servers.callBack()
        // Monitors err, so that a user who asks for a connection gets one round of attempts.
        self.insists = true
        if let reason = self.reasonToHold {
            if case .held = self.phase { return [] }
            return self.hold(reason)
        }
        return self.startMaking(now: now)
    }

    mutating func disconnect(now: NIODeadline) -> [Action] {
        var actions: [Action] = []
        self.departure = nil
        self.isWaitingForReturn = false
        self.insists = false
        switch self.phase {
        case .closed:
            return self.closeDraining()
        case .idle, .waiting, .held:
            break
        case .making:
            let error = Self.closedByUser(self.endpointBeingTried)
            actions = self.abandonMaking() + [.offline(error)]
        case .ready(let connection):
            let error = Self.closedByUser(connection.endpoint)
            self.judge(connection, now: now)
            actions = self.abandonMaking()
            actions += [.lost(connection.id, error), .close(connection.id), .offline(error)]
        }
        self.phase = .closed
        return actions + self.closeDraining() + [.report(.closed)]
    }

    private mutating func closeDraining() -> [Action] {
        let ids = self.draining.sorted { $0.number < $1.number }
        self.draining = []
        return ids.flatMap { id -> [Action] in [.lost(id, Self.closedByUser(nil)), .close(id)] }
    }

    /// Leaves the present server for `endpoint`, or for the next best one, once that one is ready.
    mutating func switchServer(to endpoint: Endpoint?, now: NIODeadline) -> [Action] {
        if let endpoint { self.servers.prefer(endpoint) }
        switch self.phase {
        case .idle, .closed:
            return []
        case .held:
            // The server that the list has got may be on this machine, and need no network.
            return self.reasonToHold == nil ? self.startMaking(target: endpoint, now: now) : []
        case .waiting:
            return self.startMaking(target: endpoint, now: now)
        case .making:
            let tried = self.endpointBeingTried
            if let endpoint, endpoint == tried { return [] }
            if endpoint == nil, let tried { self.servers.passOver(tried) }
            return self.startMaking(target: endpoint, avoiding: endpoint == nil ? tried : nil, now: now)
        case .ready(let connection):
            guard endpoint != connection.endpoint || self.departure != nil else { return self.abandonMaking() }
            guard self.reasonToHold == nil else { return [] }
            if endpoint == nil { self.servers.passOver(connection.endpoint) }
            return self.startMaking(target: endpoint, avoiding: connection.endpoint, now: now)
        }
    }

    /// Too many calls to the present server go wrong: as ``switchServer(to:now:)``, but not for the same server again.
    mutating func leaveFailingServer(now: NIODeadline) -> [Action] {
        guard let current = self.current, self.making == nil,
            self.servers.hasPresent(besides: current.endpoint, now: now)
        else { return [] }
        return self.switchServer(to: nil, now: now)
    }

    /// A new list. What is known of servers that stay is kept; a connection to one that does not is left for another.
    mutating func replaceServers(with endpoints: [Endpoint], now: NIODeadline) -> [Action] {
        self.servers.replace(with: endpoints)
        self.lastErrors = self.lastErrors.filter { self.servers.contains($0.key) }
        // Without a network, whether to try depends on the list.
        if let reason = self.reasonToHold { return self.stopAttempts(reason) }
        switch self.phase {
        case .idle, .closed:
            return []
        case .held:
            return self.startMaking(now: now)
        case .waiting:
            return self.pullForward(isCall: false, now: now)
        case .making:
            return self.adjustMaking(now: now)
        case .ready(let connection):
            if self.making != nil { return self.adjustMaking(now: now) }
            if self.departure != nil { return self.leaveAtOnce(now: now) }
            guard !self.servers.isEmpty, !self.servers.contains(connection.endpoint) else { return [] }
            return self.startMaking(avoiding: connection.endpoint, now: now)
        }
    }

    /// A call would like to leave: the first in a wait pulls the next round forward to a random moment of the next
    /// second, later ones change nothing. A server that is about to end is left at once for another.
    ///
    /// - Parameter isCall: False where it is not a call: then servers that went away are not asked any sooner.
    mutating func pullForward(isCall: Bool = true, now: NIODeadline) -> [Action] {
        if self.isReady { return self.pullDepartureForward(now: now) }
        guard case .waiting(let until, let reason, pulledForward: false) = self.phase else { return [] }
        // In a long outage calls do not undo the back-off.
        if isCall, !self.isWaitingForReturn, self.isBackedOff { return [] }
        self.phase = .waiting(
            until: min(until, self.soonest(isCall: isCall, now: now)),
            reason: reason,
            pulledForward: true
        )
        return []
    }

    /// Whether the wait's bound has come to a quarter of the cap.
    private var isBackedOff: Bool {
        let backoff = self.settings.backoff
        let bound = backoff.bound(afterFailures: max(0, self.failures - 1))
        return bound > Backoff.minimumRepeatedWait && bound >= backoff.cap / 4
    }

    static func closedByUser(_ endpoint: Endpoint?) -> SocketError {
        SocketError(
            .cancelled,
            message: "the connection\(endpoint.map { " to \($0)" } ?? "") was closed by disconnect()",
            endpoint: endpoint
        )
    }
}
