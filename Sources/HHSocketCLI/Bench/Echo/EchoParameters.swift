// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket

/// The parameters of the calls that the bench makes.
struct EchoParameters: Sendable {
    /// The API by which calls are made.
    enum API: String, ExpressibleByArgument, CaseIterable {
        /// A task and a completion handler for each call.
        case task
        /// A completion handler for each call, and no task.
        case dispatch
        /// Swift tasks that await each answer.
        case async
        /// Swift tasks that await, with a generated client, whose messages both sides encode and decode.
        case typed
        /// Streams, and Swift tasks that send and await items.
        case stream
        /// Messages of a WebSocket that come back.
        case message
        /// Lines that come back.
        case line

        /// Whether calls have completion handlers.
        var hasHandlers: Bool { self == .task || self == .dispatch }
        /// Whether Swift tasks await.
        var hasTasks: Bool { self == .async || self == .typed || self == .stream }
        /// Whether messages are sent, not frames.
        var hasMessages: Bool { self == .message || self == .line }
    }

    /// The place where completion handlers run.
    enum Callbacks: String, ExpressibleByArgument, CaseIterable {
        /// The library's default queue, which receives all answers of one read in one block.
        case `default`
        /// The socket's own thread.
        case inline

        var queue: CallbackQueue {
            switch self {
            case .default: .default
            case .inline: .socketThread
            }
        }
    }

    /// The executor of Swift tasks that await answers.
    enum Executor: String, ExpressibleByArgument, CaseIterable {
        /// Swift's thread pool.
        case global
        /// The socket's own thread.
        case socket
    }

    var server: Endpoint
    /// The server's process; nil if it is not known, or not on this machine.
    var serverPID: Int32?
    /// The name of the measured server, for the report.
    var peer: String
    var format: WireFormat
    /// The custom fields of each request.
    var header: [String: [UInt8]] = [:]
    /// Whether connections begin with a hello that agrees on metadata and compression.
    var hello = false
    /// Whether the hello of calls agrees on streams as well.
    var agreesOnStreams = false
    /// The type that the server echoes.
    var type = BuiltIn.echo
    /// The length of each body, in bytes.
    var body: Int
    /// The number of calls in flight on each connection.
    var inFlight: Int
    var connections: Int
    /// The number of threads that the connections share.
    var threads: Int
    /// In seconds.
    var warmup: Double
    /// In seconds.
    var seconds: Double
    var api: API
    /// Nil for an API without completion handlers.
    var callbacks: Callbacks?
    /// Nil for an API without Swift tasks.
    var executor: Executor?
    /// The total number of calls per second; nil for a closed loop.
    var rate: Double?
    /// The window of a stream, in bytes: how much the server may send beyond what was taken; nil for the default.
    var window: Int?
    /// The total number of plain calls per second beside streams; nil for none.
    var callsBeside: Double?
}
