// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The actions that follow from events. Each type has the cases that its events may lead to.
extension ConnectionMachine {
    /// An action of an event after which connections may be made, or no longer be made: of nearly every one.
    enum ConnectAction: Sendable {
        /// Call the resolver; report ``resolved(_:_:now:)``.
        case resolve(ConnectionID)
        /// Open a connection; report ``connected(_:now:)`` or ``connectFailed(_:_:now:)``.
        case open(ConnectionID, Endpoint)
        /// Abandon the attempt or the handshake. No report is owed.
        case close(ConnectionID)
        /// The server of the ready connection is about to end: calls wait for a successor, which will be made.
        case goAway(ConnectionID)
        /// The connection is replaced by another, with which it must not overlap: close it, and report its loss once it
        /// is closed.
        case part(ConnectionID, SocketError)
        /// Nothing is ready, and a connection is being made.
        case beingMade
        /// The next round begins later, automatically; to have it sooner, call ``reconnectSooner(isCall:now:)``. The
        /// last action of its event.
        case reconnectDeferred
        /// Nothing is ready and nothing is being made.
        case offline(SocketError)
        /// Notify the user.
        case report(SocketEvent)
    }

    /// An action of ``disconnect(now:)``.
    enum DisconnectAction: Sendable {
        /// Close the connection, or abandon the attempt or the handshake. Queued bytes may be sent first.
        case close(ConnectionID)
        /// The connection that was ready or draining has ended.
        case lost(ConnectionID, SocketError)
        case offline(SocketError)
        case report(SocketEvent)
    }

    /// An action of ``connected(_:now:)``.
    enum ConnectedAction: Sendable {
        /// Close it, because it is no longer needed.
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
        /// The previous connection, which drains; report ``drained(_:)``.
        var predecessor: Connection?
    }

    /// An action of ``connectionLost(_:_:_:now:)``.
    enum LossAction: Sendable {
        /// The connection that was ready or draining has ended.
        case lost(ConnectionID, SocketError)
        case connect(ConnectAction)
    }

    /// An action of ``networkChanged(isReachable:now:)``.
    enum NetworkAction: Sendable {
        /// Probe at once whether the connection still lives; report ``connectionLost(_:_:_:now:)`` if it does not.
        case probe(ConnectionID)
        case connect(ConnectAction)
    }

    /// An action of ``didEnterBackground(now:)``.
    enum BackgroundAction: Sendable {
        /// Notify the heartbeat's strategy.
        case applicationIsInactive
        case pauseHeartbeat(ConnectionID)
        /// The ready connection is abandoned: its calls fail.
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
