import NIOCore

/// What a ``Socket`` is doing.
public enum SocketState: Sendable {
    /// Never asked to connect.
    case idle
    /// An attempt is in progress; `attempt` counts those since the last ready connection, from 1.
    case connecting(Endpoint, attempt: Int)
    /// Connected; frames may be sent.
    case ready(Endpoint)
    /// Between rounds of attempts; the next begins at `until` by itself.
    case waiting(until: NIODeadline, reason: SocketError)
    /// Disconnected by the user, or no server could be reached within the allowed rounds.
    case closed
}

extension SocketState: CustomStringConvertible {
    public var description: String {
        switch self {
        case .idle: "idle"
        case .connecting(let endpoint, let attempt): "connecting to \(endpoint), attempt \(attempt)"
        case .ready(let endpoint): "ready, \(endpoint)"
        case .waiting(_, let reason): "waiting to reconnect (\(reason))"
        case .closed: "closed"
        }
    }
}

/// What happened to a ``Socket``, in order. Cases may be added; have a default when you switch over it.
public enum SocketEvent: Sendable {
    /// An attempt began; `attempt` counts those since the last ready connection, from 1.
    case connecting(Endpoint, attempt: Int)
    /// An attempt failed; the next server is tried, or a wait begins.
    case connectFailed(SocketError)
    /// The connection is ready.
    case connected(Endpoint)
    /// A ready connection ended, by loss or by a switch of servers.
    case disconnected(SocketError)
    /// The next round of attempts begins in `delay`.
    case waiting(delay: Duration, reason: SocketError)
    /// No server could be reached within the allowed rounds; attempts have stopped. The error is the last one.
    case gaveUp(SocketError)
    /// The user disconnected.
    case closed
}

extension SocketEvent: CustomStringConvertible {
    public var description: String {
        switch self {
        case .connecting(let endpoint, let attempt): "connecting to \(endpoint), attempt \(attempt)"
        case .connectFailed(let error): "connect failed: \(error)"
        case .connected(let endpoint): "connected to \(endpoint)"
        case .disconnected(let error): "disconnected: \(error)"
        case .waiting(let delay, let reason): "next attempt in \(delay) (\(reason))"
        case .gaveUp(let error): "gave up: \(error)"
        case .closed: "closed"
        }
    }
}
