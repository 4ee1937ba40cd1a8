// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The calls of one connection, from the first to the last.
protocol EchoLoop: Sendable {
    /// The number of calls that count so far, as of a moment ago. May be read from any thread.
    var callsSoFar: Int { get }

    /// Makes calls until the window has ended, and waits for those in flight. If the Swift task is cancelled it gives
    /// up the calls in flight, and the measurement ends then.
    ///
    /// - Throws: ``EchoFailure``, for the first call that fails or is answered wrongly; no further one is made.
    func run() async throws -> EchoTally
}

/// A measurement, as it is reported.
protocol BenchResult: Sendable {
    var json: String { get }
    var summary: String { get }
    var isInterrupted: Bool { get }
}

/// The reason for which there is nothing to report.
struct EchoFailure: Error, CustomStringConvertible {
    var description: String

    init(_ description: String) {
        self.description = description
    }

    init(_ error: SocketError) {
        // `notConnected` is less informative than its cause.
        let cause = error.code == .notConnected ? error.underlying as? SocketError ?? error : error
        self.description = "\(cause.code): \(cause.message.inOneLine)"
    }
}
