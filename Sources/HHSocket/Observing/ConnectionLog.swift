// SPDX-License-Identifier: Apache-2.0
import Logging

/// Logs the events of a connection, each line with the server and the attempt. Never payloads.
///
/// The levels follow the guidelines of the Swift server community for libraries: nothing above `debug`, except what
/// prevents the library from doing its work.
struct ConnectionLog {
    private let logger: Logger
    /// The attempt, counted from 1 since the last ready connection.
    private var attempt = 0

    init(_ logger: Logger) {
        self.logger = logger
    }

    /// Logs that a heartbeat was skipped because it could not be made. Only the error's type is logged: an app's error
    /// may hold a secret.
    func beatFailed(_ error: any Error) {
        self.logger.warning("a heartbeat could not be created", metadata: ["error": "\(type(of: error))"])
    }

    mutating func happened(_ event: SocketEvent) {
        var metadata: Logger.Metadata = [:]
        var level = Logger.Level.debug
        let message: Logger.Message
        switch event {
        case .connecting(let endpoint, let attempt):
            self.attempt = attempt
            message = "connecting"
            metadata["server"] = "\(endpoint)"
            level = .trace
        case .handshaking(let endpoint):
            message = "handshaking"
            metadata["server"] = "\(endpoint)"
            level = .trace
        case .connectFailed(let error):
            message = "connect failed"
            metadata = Self.metadata(of: error)
        case .connected(let endpoint):
            message = "connected"
            metadata["server"] = "\(endpoint)"
        case .disconnected(let error):
            message = "connection lost"
            metadata = Self.metadata(of: error)
        case .switched(let from, let to):
            message = "switched to another server"
            metadata["server"] = "\(to)"
            metadata["from"] = "\(from)"
        case .switchFailed(let error):
            message = "no other server could be reached"
            metadata = Self.metadata(of: error)
        case .goAway(let endpoint, let reason, let retryAfter):
            message = "the server sent a go-away"
            metadata = ["server": "\(endpoint)", "reason": "\(reason)", "retry_after": "\(retryAfter)"]
        case .serverFails(let endpoint, let wrong, let calls):
            message = "too many calls fail"
            metadata = ["server": "\(endpoint)", "wrong": "\(wrong)", "calls": "\(calls)"]
        case .waiting(let delay, let reason):
            message = "waiting to reconnect"
            metadata = Self.metadata(of: reason)
            metadata["delay"] = "\(delay)"
        case .gaveUp(let error):
            message = "gave up connecting"
            metadata = Self.metadata(of: error)
            level = .warning
        case .networkChanged(let isReachable):
            message = isReachable ? "the network changed" : "the network was lost"
        case .enteredBackground:
            message = "the app went to the background"
        case .willEnterForeground:
            message = "the app returns to the foreground"
        case .closed:
            message = "closed by the user"
        }
        if self.attempt > 0 { metadata["attempt"] = "\(self.attempt)" }
        switch event {
        // Lines carry the attempt while a connection is being made.
        case .connected, .switched, .switchFailed, .gaveUp, .closed: self.attempt = 0
        default: break
        }
        self.logger.log(level: level, message, metadata: metadata)
    }

    private static func metadata(of error: SocketError) -> Logger.Metadata {
        var metadata: Logger.Metadata = ["cause": "\(error.code)", "error": "\(error.message)"]
        if let endpoint = error.endpoint { metadata["server"] = "\(endpoint)" }
        return metadata
    }
}
