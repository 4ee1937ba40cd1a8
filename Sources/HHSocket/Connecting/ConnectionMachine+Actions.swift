// SPDX-License-Identifier: Apache-2.0
extension ConnectionMachine {
    /// An action that follows from an event, for the driver to perform. The order of an event's actions matters.
    enum Action: Sendable {
        /// Call the resolver; report ``resolved(_:_:now:)``.
        case resolve(ConnectionID)
        /// Open a connection; report ``connected(_:now:)`` or ``connectFailed(_:because:blame:now:)``.
        case open(ConnectionID, Endpoint)
        /// Run the handshake gate; report ``handshakeSucceeded(_:now:)`` or ``handshakeFailed(_:because:remedy:now:)``.
        case handshake(ConnectionID, attempt: Int)
        /// Calls may be sent, by this connection.
        case ready(ConnectionID, Endpoint)
        /// The connection that was ready has a successor; report ``drained(_:)``.
        case drain(ConnectionID)
        /// Close the connection once its queue is sent, or abandon the attempt or the handshake. No report is owed.
        case close(ConnectionID)
        /// The server of the ready connection is about to end: calls wait for a successor, which will be made.
        case goAway(ConnectionID)
        /// The connection is replaced by another, with which it must not overlap: close it, and report its loss once it
        /// is closed.
        case part(ConnectionID, SocketError)
        /// The connection that was ready or draining has ended: its calls fail.
        case lost(ConnectionID, SocketError)
        /// Nothing is ready, and a connection is being made.
        case beingMade
        /// The next round begins later, automatically; to have it sooner, call ``reconnectSooner(isCall:now:)``. The
        /// last action of its event.
        case reconnectDeferred
        /// Nothing is ready and nothing is being made.
        case offline(SocketError)
        /// Probe at once whether the connection still lives; report ``connectionLost(_:because:verdict:now:)`` if it
        /// does not.
        case probe(ConnectionID)
        /// Pause or resume the heartbeat of the ready connection.
        case paceHeartbeat(ConnectionID, isPaused: Bool)
        /// Notify the heartbeat's strategy.
        case application(isActive: Bool)
        /// Notify the user.
        case report(SocketEvent)
    }
}
