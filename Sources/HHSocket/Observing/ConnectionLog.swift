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
        if case .connecting(_, let attempt) = event { self.attempt = attempt }
        var (message, metadata) = Self.line(of: event)
        if self.attempt > 0 { metadata["attempt"] = "\(self.attempt)" }
        var level = Logger.Level.debug
        switch event {
        case .connecting, .handshaking: level = .trace
        // Lines carry the attempt while a connection is being made.
        case .connected, .switched, .switchFailed, .closed: self.attempt = 0
        case .gaveUp: (self.attempt, level) = (0, .warning)
        default: break
        }
        self.logger.log(level: level, message, metadata: metadata)
    }

    private static func line(of event: SocketEvent) -> (Logger.Message, Logger.Metadata) {
        switch event {
        case .connecting(let endpoint, _): ("connecting", ["server": "\(endpoint)"])
        case .handshaking(let endpoint): ("handshaking", ["server": "\(endpoint)"])
        case .connectFailed(let error): ("connect failed", self.metadata(of: error))
        case .connected(let endpoint): ("connected", ["server": "\(endpoint)"])
        case .disconnected(let error): ("connection lost", self.metadata(of: error))
        case .switched(let from, let to): ("switched to another server", ["server": "\(to)", "from": "\(from)"])
        case .switchFailed(let error): ("no other server could be reached", self.metadata(of: error))
        case .goAway(let endpoint, let reason, let retryAfter):
            (
                "the server sent a go-away",
                ["server": "\(endpoint)", "reason": "\(reason)", "retry_after": "\(retryAfter)"]
            )
        case .serverFails(let endpoint, let wrong, let calls):
            ("too many calls fail", ["server": "\(endpoint)", "wrong": "\(wrong)", "calls": "\(calls)"])
        case .waiting(let delay, let reason):
            ("waiting to reconnect", self.metadata(of: reason).merging(["delay": "\(delay)"]) { $1 })
        case .gaveUp(let error): ("gave up connecting", self.metadata(of: error))
        case .networkChanged(let isReachable): (isReachable ? "the network changed" : "the network was lost", [:])
        case .enteredBackground: ("the app went to the background", [:])
        case .willEnterForeground: ("the app returns to the foreground", [:])
        case .closed: ("closed by the user", [:])
        }
    }

    private static func metadata(of error: SocketError) -> Logger.Metadata {
        var metadata: Logger.Metadata = ["cause": "\(error.code)", "error": "\(error.message)"]
        if let endpoint = error.endpoint { metadata["server"] = "\(endpoint)" }
        return metadata
    }
}
