import ArgumentParser
import HHSocket

/// What calls the bench makes.
struct EchoParameters: Sendable {
    /// Which way of making calls is measured.
    enum API: String, ExpressibleByArgument, CaseIterable {
        /// A task and a completion handler for each call.
        case task
        /// Swift tasks that await each answer.
        case async
        /// By tasks that await, with a generated client, whose messages both sides read and write.
        case typed
    }

    /// Where completion handlers run.
    enum Callbacks: String, ExpressibleByArgument, CaseIterable {
        /// On the library's default queue, to which what one read brings is handed over in one block.
        case `default`
        /// On the socket's own thread.
        case inline

        var queue: CallbackQueue {
            switch self {
            case .default: .default
            case .inline: .socketThread
            }
        }
    }

    /// Where the Swift tasks that await answers run.
    enum Executor: String, ExpressibleByArgument, CaseIterable {
        /// On Swift's thread pool.
        case global
        /// On the socket's own thread.
        case socket
    }

    var server: Endpoint
    /// Nil if it is not known, or not on this machine.
    var serverPID: Int32?
    /// The name of the measured server, for the report.
    var peer: String
    var format: WireFormat
    /// The custom fields of each request.
    var header: [String: [UInt8]] = [:]
    /// Whether connections begin with a hello that agrees on metadata and compression.
    var hello = false
    /// In bytes.
    var body: Int
    /// Calls in flight on each connection.
    var inFlight: Int
    var connections: Int
    /// In seconds.
    var warmup: Double
    /// In seconds.
    var seconds: Double
    var api: API
    /// Nil where there are no completion handlers.
    var callbacks: Callbacks?
    /// Nil where no Swift tasks make the calls.
    var executor: Executor?
    /// Calls per second in all; nil for a closed loop.
    var rate: Double?
}
