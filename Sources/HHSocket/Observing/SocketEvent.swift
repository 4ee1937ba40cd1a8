// SPDX-License-Identifier: Apache-2.0
/// An event of a ``Socket``. Cases may be added; have a default when you switch over it.
public enum SocketEvent: Sendable {
    /// An attempt began; `attempt` counts those since the last ready connection, from 1.
    case connecting(Endpoint, attempt: Int)
    /// An attempt or a handshake failed; the next server is tried, or a wait begins.
    case connectFailed(SocketError)
    /// A connection is made; the handshake gate runs.
    case handshaking(Endpoint)
    /// The connection is ready.
    case connected(Endpoint)
    /// A ready connection ended without a successor.
    case disconnected(SocketError)
    /// A new connection is ready and replaces one by choice, which drains.
    case switched(from: Endpoint, to: Endpoint)
    /// No other server could be reached; the current connection is kept.
    case switchFailed(SocketError)
    /// The server announced its shutdown, and asks clients to stay away for `retryAfter`. A successor of its connection
    /// is made, or, if the announcement arrived during the handshake, the next server is tried. The reason is the
    /// server's, for people to read.
    case goAway(Endpoint, reason: String, retryAfter: Duration)
    /// Too many of the latest calls to this server failed: the client fails over, if there is another server.
    case serverFails(Endpoint, wrong: Int, calls: Int)
    /// The next round of attempts begins in `delay`.
    case waiting(delay: Duration, reason: SocketError)
    /// Attempts have stopped: no server could be reached within the allowed rounds (`noServerReachable`, with the last
    /// error of each), the gate refused (`handshakeRefused`), or there is no server (`invalidArgument`).
    case gaveUp(SocketError)
    /// The network was lost (false), or returned or changed (true).
    case networkChanged(isReachable: Bool)
    /// The app went to the background.
    case enteredBackground
    /// The app is about to return to the foreground.
    case willEnterForeground
    /// The user disconnected.
    case closed
}

extension SocketEvent: CustomStringConvertible {
    public var description: String {
        switch self {
        case .connecting(let endpoint, let attempt): "connecting to \(endpoint), attempt \(attempt)"
        case .connectFailed(let error): "connect failed: \(error)"
        case .handshaking(let endpoint): "handshaking with \(endpoint)"
        case .connected(let endpoint): "connected to \(endpoint)"
        case .disconnected(let error): "disconnected: \(error)"
        case .switched(let from, let to): "switched from \(from) to \(to)"
        case .switchFailed(let error): "switch failed: \(error)"
        case .goAway(let endpoint, let reason, let retryAfter):
            "\(endpoint) sent a go-away, for \(retryAfter.forHumans)\(reason.isEmpty ? "" : ": \(reason)")"
        case .serverFails(let endpoint, let wrong, let calls): "\(wrong) of \(calls) calls to \(endpoint) failed"
        case .waiting(let delay, let reason): "next attempt in \(delay) (\(reason))"
        case .gaveUp(let error): "gave up: \(error)"
        case .networkChanged(let isReachable): isReachable ? "the network changed" : "the network was lost"
        case .enteredBackground: "the app went to the background"
        case .willEnterForeground: "the app returns to the foreground"
        case .closed: "closed"
        }
    }
}
