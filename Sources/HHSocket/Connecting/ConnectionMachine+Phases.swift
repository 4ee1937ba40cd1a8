// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The phases of the machine, each with what exists in it alone.
extension ConnectionMachine {
    enum Phase: Sendable {
        /// Never asked to connect.
        case idle
        /// Nothing is ready, and a connection is being made.
        case making(Making)
        case ready(Ready)
        /// Between rounds of attempts.
        case waiting(Wait)
        /// Without a network that is needed, or in the background: until that changes.
        case held(SocketError)
        /// Disconnected by the user, or given up.
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
        /// When one more attempt joins them.
        var nextStart: NIODeadline?
    }

    struct Handshake: Sendable {
        var attempt: Attempt
        var until: NIODeadline
        /// Whether the gate waits for the answer to hello: what the error says when the time is up.
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
        /// The server the user asked for.
        var target: Endpoint?
        /// The server the user wants to leave.
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

        /// Does not try a server in this round any more.
        mutating func exclude(_ endpoint: Endpoint) {
            if self.target == endpoint { self.target = nil }
            self.candidates.removeAll { $0 == endpoint }
        }
    }

    struct Connection: Sendable {
        var id: ConnectionID
        var endpoint: Endpoint
        var since: NIODeadline
        /// The path below changed, or the app slept, since it was proved alive: if it is dead there is no reason to
        /// wait.
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

    struct Wait: Sendable {
        var until: NIODeadline
        var reason: SocketError
        /// Whether a call has pulled the next round forward.
        var isPulledForward = false
        /// Whether the floor above takes it for a connection being made: servers that said that they go away are to be
        /// tried at its end.
        var isForReturn = false
    }
}
