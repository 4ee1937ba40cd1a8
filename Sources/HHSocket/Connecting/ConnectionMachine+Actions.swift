// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The actions that follow from events. Each type has the cases that its events may lead to.
extension ConnectionMachine {
    /// An action of an event after which connections may be made, or no longer be made: of nearly every one.
    enum ConnectAction: Sendable {
        /// Ask the resolver; report ``resolved(_:_:now:)``.
        case resolve(ConnectionID)
        /// Open a connection; report ``connected(_:now:)`` or ``connectFailed(_:_:now:)``.
        case open(ConnectionID, Endpoint)
        /// Abandon the attempt or the handshake. No report is owed.
        case close(ConnectionID)
        /// The server of the ready connection is about to end: calls wait for a successor, which will be made.
        case goAway(ConnectionID)
        /// The connection is left for another, and may not overlap with it: close it, and report that it is lost once
        /// it is gone.
        case part(ConnectionID, SocketError)
        /// Nothing is ready, and a connection is being made.
        case beingMade
        /// The next round begins later, by itself; whoever waits for it calls ``reconnectSooner(isCall:now:)``. It is
        /// the last action of its event.
        case reconnectDeferred
        /// Nothing is ready and nothing is being made.
        case offline(SocketError)
        /// Notify the user.
        case report(SocketEvent)
    }

    /// An action of ``disconnect(now:)``.
    enum DisconnectAction: Sendable {
        /// Close the connection, or abandon the attempt or the handshake. What is queued may be sent first.
        case close(ConnectionID)
        /// The connection that was ready, or draining, is no more.
        case lost(ConnectionID, SocketError)
        case offline(SocketError)
        case report(SocketEvent)
    }

    /// An action of ``connected(_:now:)``.
    enum ConnectedAction: Sendable {
        /// Close it: it is not wanted any more.
        case close(ConnectionID)
        /// Abandon the attempts that lost the race, and run the handshake gate; report
        /// ``handshakeSucceeded(_:now:)`` or ``handshakeFailed(_:_:_:now:)``.
        case handshake(ConnectionID, Endpoint, attempt: Int, losers: [ConnectionID])
        /// Abandon the attempts that lost the race. Calls may be sent.
        case ready(Readiness, losers: [ConnectionID])
    }

    /// Calls may be sent, by this connection.
    struct Readiness: Sendable {
        var id: ConnectionID
        var endpoint: Endpoint
        /// Lets it finish what is in flight; report ``drained(_:)``.
        var predecessor: Connection?
    }

    /// An action of ``connectionLost(_:_:_:now:)``.
    enum LossAction: Sendable {
        /// The connection that was ready, or draining, is no more.
        case lost(ConnectionID, SocketError)
        case connect(ConnectAction)
    }

    /// An action of ``networkChanged(isReachable:now:)``.
    enum NetworkAction: Sendable {
        /// Find out at once whether the connection still lives; report ``connectionLost(_:_:_:now:)`` if it does not.
        case probe(ConnectionID)
        case connect(ConnectAction)
    }

    /// An action of ``didEnterBackground(now:)``.
    enum BackgroundAction: Sendable {
        /// Notify the heartbeat's strategy.
        case applicationIsInactive
        case pauseHeartbeat(ConnectionID)
        /// The ready connection is given up: its calls fail.
        case lose(ConnectionID, SocketError)
        case connect(ConnectAction)
    }

    /// An action of ``willEnterForeground(now:)``.
    enum ForegroundAction: Sendable {
        case applicationIsActive
        case resumeHeartbeat(ConnectionID)
        /// Probe, as after a change of the network.
        case probe(ConnectionID)
        case connect(ConnectAction)
    }
}
