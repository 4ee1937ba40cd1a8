// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// The reason why a connection of a server has ended. Cases may be added; have a default when you switch over it.
public enum ServerCloseReason: String, Hashable, Sendable, CustomStringConvertible {
    /// The client closed the connection.
    case closedByClient
    /// The network, or the system, ended the connection.
    case connectionLost
    /// The client's bytes made no sense.
    case protocolError
    /// The client answered no ping.
    case dead
    /// The client sent nothing for too long (``ServerLimits/idleTimeout``), or not the data that was due.
    case timedOut
    /// The client sent or read too slowly.
    case tooSlow
    /// The client reached another limit (``ServerLimits``), which the log names.
    case limit
    /// The application closed the connection, or the handler of its messages has returned.
    case closedByServer
    /// The server shut down.
    case shutdown
    /// The client was not admitted, because it could not be authenticated.
    case refused
    /// On a port for both frames and WebSockets: the client is a WebSocket that carries messages, which is counted as a
    /// separate connection.
    case upgraded

    /// The name, for logs and metrics.
    public var description: String { self.rawValue }
}

extension ServerCloseReason {
    init(_ cause: LinkEnd.Cause) {
        self =
            switch cause {
            case .closedByPeer, .said: .closedByClient
            case .failed: .connectionLost
            case .protocolViolation: .protocolError
            case .writeStalled: .tooSlow
            case .peerIsDead: .dead
            }
    }
}
