// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Decides when to connect, where, and when to stop. Takes events and the time, and returns actions; it has no clock,
/// randomness or I/O, so every race can be tested in virtual time.
///
/// Its ``phase`` is one of six, each of which holds the values that exist only in it. An event returns actions, which
/// the driver performs.
///
/// Being offline by the user's choice (`closed`) and by a loss (`waiting`) are different: only after a loss does it
/// reconnect. Events of any connection but the current ones are stale and have no effect.
///
/// `+Phases` has the phases, `+Actions` the actions. The other files have the events: `+User` those of the application,
/// `+Attempts` and `+Ends` those of connections, `+Environment` those of the network and the app's lifecycle, `+GoAway`
/// those of servers that shut down. `+Rounds` has the rounds of attempts, to which many events lead.
struct ConnectionMachine<Generator: RandomNumberGenerator & Sendable>: Sendable {
    struct Settings: Sendable {
        var backoff = Backoff()
        var racing: RacingPolicy?
        /// The exchange on each connection before it is used; nil for none.
        var handshake: LinkHandshake?
        /// The time that the resolver may take; nil without a resolver.
        var resolverTimeout: Duration?
        var background = BackgroundPolicy.finishTasks
        /// The proxy through which all servers but Unix domain sockets are reached; nil for none.
        var proxy: Endpoint?
        /// The families by which servers that are IP addresses are reached.
        var addressFamilies = AddressFamilies.any
        /// Whether a successor is made while the departing connection still exists; otherwise that is closed first, so
        /// that there are never two.
        var linksMayOverlap = true
    }

    let settings: Settings
    var generator: Generator
    var servers: ServerList
    var phase = Phase.idle
    /// Connections that have a successor and still finish their work in flight.
    var draining: Set<ConnectionID> = []
    /// The servers that the last one named when it went away, best first, as far as they may be used: the next rounds
    /// begin with them, until a connection is ready.
    var alternates: [Endpoint] = []
    var nextID: UInt64 = 1
    var isReachable = true
    var isInBackground = false
    /// Waits in a row without a stable connection: the back-off's exponent.
    var failures = 0
    /// The number of whole rounds since the last ready connection, for the limit.
    var failedRounds = 0
    /// The number of rounds that may fail, if ``connect(attempts:now:)`` has set it.
    var allowedRounds: Int?
    /// Whether attempts have stopped because the allowed number of rounds failed, so that ``connectAgain(now:)`` starts
    /// again. The user's close, a verdict and an invalid configuration are other reasons.
    var hasRunOut = false
    /// Attempts since the last ready connection.
    var attempts = 0
    /// The last error of each server since the last ready connection.
    var lastErrors: [Endpoint: SocketError] = [:]
    var lastError: SocketError?
    /// The ready connection that was lost last.
    var lastLost: ConnectionID?
    /// Whether the user has requested a connection: one round is tried even if the monitor reports no network.
    var insists = false

    init(
        servers: [Endpoint],
        policy: ServerPolicy = ServerPolicy(),
        settings: Settings = Settings(),
        generator: Generator
    ) {
        self.servers = ServerList(servers, policy: policy, addressFamilies: settings.addressFamilies)
        self.settings = settings
        self.generator = generator
    }

    var state: SocketState {
        switch self.phase {
        case .idle: .idle
        case .making(let making): self.state(of: making)
        case .ready(let ready): .ready(ready.connection.endpoint)
        case .waiting(let wait): .waiting(until: wait.until, reason: wait.reason)
        case .held(let reason): .waiting(until: .distantFuture, reason: reason)
        case .closed: .closed
        }
    }

    private func state(of making: Making) -> SocketState {
        switch making.stage {
        case .resolving: return .resolving
        case .handshaking(let handshake): return .handshaking(handshake.attempt.endpoint)
        case .racing(let race):
            guard let latest = race.attempts.last else { return .resolving }
            return .connecting(latest.endpoint, attempt: self.attempts)
        }
    }

    /// The time to call ``timerFired(now:)`` if no other event occurs before; changes with each event.
    var nextDeadline: NIODeadline? {
        switch self.phase {
        case .idle, .held, .closed: nil
        case .making(let making): making.nextDeadline
        case .waiting(let wait): wait.until
        case .ready(let ready):
            if let successor = ready.successor { successor.nextDeadline } else { self.departureDeadline }
        }
    }

    // MARK: Pieces

    var ready: Ready? {
        if case .ready(let ready) = self.phase { ready } else { nil }
    }

    var current: Connection? { self.ready?.connection }

    var isReady: Bool { self.current != nil }

    /// The connection that is being made: the first, the next, or the ready one's successor.
    var making: Making? {
        switch self.phase {
        case .making(let making): making
        case .ready(let ready): ready.successor
        case .idle, .waiting, .held, .closed: nil
        }
    }

    /// The connection whose handshake is in progress, if it has this ID.
    func handshake(of id: ConnectionID) -> (Making, Attempt)? {
        guard let making = self.making, case .handshaking(let handshake) = making.stage, handshake.attempt.id == id
        else { return nil }
        return (making, handshake.attempt)
    }

    /// The server that the latest attempt is for.
    var endpointBeingTried: Endpoint? {
        switch self.making?.stage {
        case nil, .resolving: nil
        case .racing(let race): race.attempts.last?.endpoint
        case .handshaking(let handshake): handshake.attempt.endpoint
        }
    }

    /// Whether the resolver's answer is awaited.
    var isResolving: Bool { if case .resolving = self.making?.stage { true } else { false } }

    /// Makes this connection from here on.
    mutating func proceed(_ making: Making) {
        if case .ready(var ready) = self.phase {
            ready.successor = making
            self.phase = .ready(ready)
        } else {
            self.phase = .making(making)
        }
    }

    /// Stops making connections. A ready one stays.
    mutating func stopMaking() {
        switch self.phase {
        case .making:
            self.phase = .idle
        case .ready(var ready):
            ready.successor = nil
            self.phase = .ready(ready)
        case .idle, .waiting, .held, .closed:
            break
        }
    }

    mutating func makeID() -> ConnectionID {
        defer { self.nextID += 1 }
        return ConnectionID(number: self.nextID)
    }

    static func closedByUser(_ endpoint: Endpoint?) -> SocketError {
        SocketError(
            .cancelled,
            message: "the connection\(endpoint.map { " to \($0)" } ?? "") was closed by disconnect()",
            endpoint: endpoint
        )
    }
}
