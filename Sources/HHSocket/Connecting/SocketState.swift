// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The state of a ``Socket``. Cases may be added; have a default when you switch over it.
public enum SocketState: Sendable {
    /// `connect()` was never called.
    case idle
    /// The resolver is searching for servers.
    case resolving
    /// An attempt is in progress; `attempt` counts those since the last ready connection, from 1. While several race it
    /// is the latest.
    case connecting(Endpoint, attempt: Int)
    /// Connected; the handshake gate has not returned yet.
    case handshaking(Endpoint)
    /// Connected; frames may be sent.
    case ready(Endpoint)
    /// Between rounds of attempts; the next one begins automatically at `until`, which is `.distantFuture` while there
    /// is no network or the app is in the background.
    case waiting(until: NIODeadline, reason: SocketError)
    /// Disconnected by the user, or no server could be reached within the allowed rounds.
    case closed
}

extension SocketState: CustomStringConvertible {
    public var description: String {
        switch self {
        case .idle: "idle"
        case .resolving: "looking for servers"
        case .connecting(let endpoint, let attempt): "connecting to \(endpoint), attempt \(attempt)"
        case .handshaking(let endpoint): "handshaking with \(endpoint)"
        case .ready(let endpoint): "ready, \(endpoint)"
        case .waiting(_, let reason): "waiting to reconnect (\(reason))"
        case .closed: "closed"
        }
    }
}
