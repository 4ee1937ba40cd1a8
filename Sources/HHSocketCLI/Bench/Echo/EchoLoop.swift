import HHSocket

/// The calls of one connection, from the first to the last.
protocol EchoLoop: Sendable {
    /// How many calls count so far, or did a moment ago. From any thread.
    var callsSoFar: Int { get }

    /// Makes the calls until the window has ended, and waits for those in flight. When the Swift task is cancelled it
    /// gives up what is in flight, and what it returns ends then.
    ///
    /// - Throws: ``EchoFailure``, for the first call that fails or is answered wrongly; no further one is made.
    func run() async throws -> EchoTally
}

/// Why there is nothing to report.
struct EchoFailure: Error, CustomStringConvertible {
    var description: String

    init(_ description: String) {
        self.description = description
    }

    init(_ error: SocketError) {
        // That there is no connection says less than why.
        let cause = error.code == .notConnected ? error.underlying as? SocketError ?? error : error
        self.description = "\(cause.code): \(cause.message.inOneLine)"
    }
}
