// SPDX-License-Identifier: Apache-2.0
/// The effect of a status on repeats of the request that it answers.
///
/// This is the only such table: the server, the client and the outbox use it. `Docs/Protocol.md` lists it.
extension Status {
    /// The three rows of the table.
    private enum Meaning {
        /// The server refused the request before it began.
        case notExecuted
        /// The request failed for a reason that may go away.
        case failedForNow
        /// The request has its answer, be it success or failure.
        case answered
    }

    private var meaning: Meaning {
        switch self {
        case .undefinedType, .overloaded, .draining:
            .notExecuted
        case .serverLostConnection, .lostPacket, .database, .unknown, .noPermission, .deadlineExceeded,
            .cancelledByServer:
            .failedForNow
        // This includes statuses of the application, whose meaning only the application knows.
        default:
            .answered
        }
    }

    /// Whether the server may have begun to execute the request.
    ///
    /// False for ``undefinedType``, ``overloaded`` and ``draining``: sending the request again is safe, whatever it
    /// does.
    package var mayHaveBeenExecuted: Bool { self.meaning != .notExecuted }

    /// Whether a later attempt of the same request may succeed.
    ///
    /// False for ``ok``, for errors of the request itself, and for every status that is not listed in ``Status``.
    public var isTransient: Bool { self.meaning != .answered }

    /// Whether a server keeps an answer of this status for the request's idempotency key, and returns it to repeats.
    ///
    /// The opposite of ``isTransient``: a repeat could never succeed if a transient failure were kept.
    package var isKept: Bool { self.meaning == .answered }
}
