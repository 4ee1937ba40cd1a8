// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// The reason why a connection of a server has ended.
public struct ServerCloseReason: Hashable, Sendable, CustomStringConvertible {
    private enum Code: UInt8 {
        case closedByClient, connectionLost, protocolError, dead, timedOut, tooSlow, limit, closedByServer, shutdown,
            refused, upgraded
    }

    private let code: Code

    private init(_ code: Code) {
        self.code = code
    }

    /// The client closed the connection.
    public static let closedByClient = Self(.closedByClient)
    /// The network, or the system, ended the connection.
    public static let connectionLost = Self(.connectionLost)
    /// The client's bytes made no sense.
    public static let protocolError = Self(.protocolError)
    /// The client answered no ping.
    public static let dead = Self(.dead)
    /// The client sent nothing for too long (``ServerLimits/idleTimeout``), or not the data that was due.
    public static let timedOut = Self(.timedOut)
    /// The client sent or read too slowly.
    public static let tooSlow = Self(.tooSlow)
    /// The client reached another limit (``ServerLimits``), which the log names.
    public static let limit = Self(.limit)
    /// The application closed the connection, or the handler of its messages has returned.
    public static let closedByServer = Self(.closedByServer)
    /// The server shut down.
    public static let shutdown = Self(.shutdown)
    /// The client was not admitted, because it could not be authenticated.
    public static let refused = Self(.refused)
    /// On a port for both frames and WebSockets: the client is a WebSocket that carries messages, which is counted as a
    /// separate connection.
    public static let upgraded = Self(.upgraded)

    /// The name, for logs and metrics.
    public var description: String { "\(self.code)" }
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
