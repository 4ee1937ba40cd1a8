// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The phases of the machine, each with the values that exist only in it.
extension ConnectionMachine {
    enum Phase: Sendable {
        /// `connect()` was never called.
        case idle
        /// Nothing is ready, and a connection is being made.
        case making(Making)
        case ready(Ready)
        /// Between rounds of attempts.
        case waiting(Wait)
        /// Without a network that is needed, or in the background: until that changes.
        case held(SocketError)
        /// Disconnected by the user, or attempts have stopped.
        case closed
    }

    struct Attempt: Sendable {
        var id: ConnectionID
        var endpoint: Endpoint
    }

    /// Attempts that are in progress, or about to begin.
    struct Race: Sendable {
        /// Oldest first.
        var attempts: [Attempt] = []
        /// The time at which one more attempt joins them.
        var nextStart: NIODeadline?
    }

    struct Handshake: Sendable {
        var attempt: Attempt
        var until: NIODeadline
        /// Whether the gate waits for the answer to hello, for the error message on a timeout.
        var awaitsHello = false
    }

    /// A connection that is being made: the first, the next, or a successor.
    struct Making: Sendable {
        enum Stage: Sendable {
            case resolving(ConnectionID, until: NIODeadline)
            case racing(Race)
            case handshaking(Handshake)
        }

        var stage = Stage.racing(Race())
        /// The server that the user requested.
        var target: Endpoint?
        /// The server that the user wants to leave.
        var avoided: Endpoint?
        /// Servers of this round that were not tried yet.
        var candidates: ArraySlice<Endpoint> = []
        /// Servers of this round that were.
        var tried: Set<Endpoint> = []

        var nextDeadline: NIODeadline? {
            switch self.stage {
            case .resolving(_, let until): until
            case .racing(let race): race.nextStart
            case .handshaking(let handshake): handshake.until
            }
        }

        /// The attempts that are open.
        var attempts: [Attempt] {
            switch self.stage {
            case .resolving: []
            case .racing(let race): race.attempts
            case .handshaking(let handshake): [handshake.attempt]
            }
        }

        /// Excludes a server from this round.
        mutating func exclude(_ endpoint: Endpoint) {
            if self.target == endpoint { self.target = nil }
            self.candidates.removeAll { $0 == endpoint }
        }
    }

    struct Connection: Sendable {
        var id: ConnectionID
        var endpoint: Endpoint
        var since: NIODeadline
        /// Whether the path changed, or the app slept, since the connection was last known to be alive: if it is dead,
        /// it is replaced without back-off.
        var isSuspect = false
        /// Whether it has been of use to those above, and counts as having been ready for long.
        var isProved = false
    }

    struct Ready: Sendable {
        var connection: Connection
        /// The connection that is made to replace it.
        var successor: Making?
        /// Set from when its server is about to end.
        var departure: PendingDeparture?
    }

    /// The state of a ready connection whose server is about to end: when its successor is made.
    struct PendingDeparture: Sendable {
        /// Whether the server sent a go-away, which contains all available information.
        var isAnnounced: Bool
        /// Whether the connection was ready long enough to count in favour of its server.
        var wasStable: Bool
        /// ``ConnectionMachine/failures`` when it began.
        var failuresBefore: Int
        /// The time at which the next round begins while none is in progress; `.distantFuture` if none does.
        var starts = NIODeadline.distantFuture
        var isPulledForward = false
        var failedRounds = 0
    }

    struct Wait: Sendable {
        var until: NIODeadline
        var reason: SocketError
        /// Whether a call has pulled the next round forward.
        var isPulledForward = false
        /// Whether the consumer treats it as a connection being made: at its end, servers that went away are tried.
        var isForReturn = false
        /// Whether the wait only spreads clients whose network has changed: a call ends it.
        var isSpread = false
    }
}
