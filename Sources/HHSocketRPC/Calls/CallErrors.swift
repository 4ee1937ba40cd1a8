// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The errors of calls that fail on this side. Messages describe what failed, where, why, and what to do.
enum CallErrors {
    static var released: SocketError {
        SocketError(.cancelled, message: "the client was released, or invalidated, before the call completed")
    }

    static var invalidated: SocketError {
        SocketError(
            .cancelled,
            message: "the client takes no more calls after finishTasksAndInvalidate(); make another client"
        )
    }

    /// The error of a cancelled call.
    ///
    /// - Parameters:
    ///   - type: The type of the task's request.
    ///   - endpoint: The server that the client is connected to.
    static func cancelled(_ type: UInt32, at endpoint: Endpoint?) -> SocketError {
        SocketError(.cancelled, message: "the call of type \(type) was cancelled", endpoint: endpoint)
    }

    // MARK: Limits

    /// The error of a call beyond `maximumInFlight`.
    static func tooManyInFlight(_ count: Int, at endpoint: Endpoint?) -> SocketError {
        SocketError(
            .tooManyInFlight,
            message: """
                \(count) calls to \(Self.server(endpoint)) are in flight already (maximumInFlight); wait for some to \
                complete
                """,
            endpoint: endpoint
        )
    }

    /// The error of a call beyond `maximumWaiting` or `maximumWaitingBytes`.
    static func queueFull(_ count: Int, bytes: Int, for endpoint: Endpoint?) -> SocketError {
        SocketError(
            .queueFull,
            message: """
                \(count) calls, \(bytes) bytes, wait for a connection to \(Self.server(endpoint)) already \
                (maximumWaiting, maximumWaitingBytes)
                """,
            endpoint: endpoint
        )
    }

    /// The error of a call beyond `maximumInFlight` and `maximumWaiting` together.
    static func tooManyCalls(_ count: Int, at endpoint: Endpoint?) -> SocketError {
        SocketError(
            .queueFull,
            message: """
                \(count) calls have not completed yet (maximumInFlight and maximumWaiting together), those included \
                whose interceptors are at work or that wait to be sent again
                """,
            endpoint: endpoint
        )
    }

    private static func server(_ endpoint: Endpoint?) -> String { endpoint.map { "\($0)" } ?? "the server" }

    // MARK: Time

    /// A call whose time is up.
    struct Timeout {
        /// The progress of its attempt.
        enum Stage {
            /// It waits for a connection.
            ///
            /// - Parameter succeeds: Whether this is the successor of a connection that ends.
            case waiting(succeeds: Bool)
            case queued
            case sent(Progress)
            case backingOff
            /// Its body is compressed or decompressed.
            case parked
            case intercepted
        }

        /// The bytes of bodies that have moved.
        struct Progress {
            var length: Int
            var sent: Int
            var received: Int
            /// The number of bytes of the answer, if it is known.
            var expected: Int?
        }

        /// The limit that it has reached.
        enum Limit {
            case deadline
            case timeout(Duration)
        }

        /// The type of the request that was sent last.
        var type: UInt32
        var stage: Stage
        var limit: Limit
        var serial: UInt32?
        /// The number of attempts.
        var attempts = 0
        /// The error of the attempt before.
        var lastFailure: SocketError?
        /// The error of the last attempt to connect.
        var lastConnect: SocketError?
        /// The server that the request was sent to; nil if it was not sent. It did not answer, even if there is another
        /// connection now.
        var server: Endpoint?
        /// The server that the client is connected to.
        var currentServer: Endpoint?
        /// A description of a connection that has brought no frame (``silence(_:in:)``).
        var silence = ""
    }

    static func timedOut(_ call: Timeout) -> SocketError {
        let server = Self.server(call.server ?? call.currentServer)
        let (what, isSent) =
            switch call.stage {
            case .waiting(succeeds: true): ("no successor of the connection to \(server), which ends,", false)
            case .waiting(succeeds: false): ("no connection to \(server)", false)
            case .queued: ("\(server) did not read", false)
            case .sent(let progress): ("no answer from \(server)\(Self.text(progress))", true)
            case .backingOff: ("every attempt failed, and the next was still to come,", false)
            case .parked: ("its body was being compressed or decompressed, and", false)
            case .intercepted: ("an interceptor was running, and did not return", false)
            }
        let serial = call.serial.map { ", serial \($0)" } ?? ""
        var causes = call.silence
        if let lastFailure = call.lastFailure {
            causes += "; the attempt before (of \(call.attempts)): \(lastFailure.message)"
        }
        if let lastConnect = call.lastConnect { causes += "; the last connect error: \(lastConnect.message)" }
        let limit =
            switch call.limit {
            case .deadline: "before the request's deadline"
            case .timeout(let timeout): "within \(timeout)"
            }
        return SocketError(
            .timeout,
            message: "\(what) \(limit) (type \(call.type)\(serial))\(causes)",
            underlying: call.lastConnect ?? call.lastFailure,
            endpoint: call.server ?? call.currentServer ?? call.lastConnect?.endpoint,
            serial: call.serial,
            delivery: isSent ? .sentUnknown : .notSent
        )
    }

    private static func text(_ progress: Timeout.Progress) -> String {
        if progress.sent < progress.length {
            return ", \(progress.sent) of whose \(progress.length) bytes had left,"
        }
        guard progress.received > 0 || progress.expected != nil else { return "" }
        return ", which had come to \(progress.received) of \(progress.expected ?? progress.received) bytes,"
    }

    /// A description of a connection that has brought no frame: the description of its frames may be wrong.
    ///
    /// - Parameter silence: The bytes that it has brought, in words; nil if it has brought a frame.
    static func silence(_ silence: String?, in format: WireFormat) -> String {
        guard let silence else { return "" }
        let advice = format == .standard ? "" : "; is the wire format \(format) the server's?"
        return "; \(silence)\(advice)"
    }

    /// The error of an attempt whose answer did not begin in time.
    ///
    /// - Parameters:
    ///   - type: The type of the request.
    ///   - silence: A description of a connection that has brought no frame (``silence(_:in:)``).
    static func firstResponseTimedOut(
        _ type: UInt32,
        serial: UInt32?,
        after timeout: Duration,
        at endpoint: Endpoint,
        silence: String
    ) -> SocketError {
        let suffix = serial.map { ", serial \($0)" } ?? ""
        return SocketError(
            .timeout,
            message: """
                no answer from \(endpoint) began within \(timeout) of the request's leaving (firstResponseTimeout; \
                type \(type)\(suffix))\(silence)
                """,
            endpoint: endpoint,
            serial: serial,
            delivery: .sentUnknown
        )
    }

    // MARK: Interceptors

    static var nextIsRunning: SocketError {
        .invalid("an interceptor called next again before the call of it before had returned")
    }

    /// The error for an interceptor of a call that has completed.
    static func interceptedTooLate(_ type: UInt32) -> SocketError {
        SocketError(
            .cancelled,
            message: "the call of type \(type) has completed, before an interceptor asked for its answer"
        )
    }
}
