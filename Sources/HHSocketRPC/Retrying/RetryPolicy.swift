// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The conditions under which a failed call is sent again, within its timeout.
///
/// A call is sent again if the server is known not to have run it (``/HHSocket/SocketError/notExecuted``), or if its
/// request is idempotent (``CallOptions/isIdempotent``). A retry waits for a connection if there is none.
public struct RetryPolicy: Hashable, Sendable {
    /// The number of times that a request may be sent in all, at least 1.
    package var maximumAttempts: Int
    /// The back-off before each retry.
    package var backoff: Backoff
    /// The failures after which a call is sent again.
    package var codes: Set<SocketError.Code>

    /// The default codes: the connection was lost, the answer did not begin in time, a checksum was wrong on either
    /// side, or the server was overloaded or about to end.
    ///
    /// The statuses among them are transient (``/HHSocket/Status/isTransient``), and likely to pass within a call's
    /// timeout.
    public static let defaultCodes: Set<SocketError.Code> = [
        .connectionLost, .timeout, .lostPacket, .checksumMismatch, .overloaded, .draining,
    ]

    /// No retries.
    public static let none = RetryPolicy(maximumAttempts: 1)

    /// Creates a policy.
    ///
    /// A request with an idempotency key is not sent again after an answer that the server keeps for the key, one whose
    /// status is not transient, whatever the codes: the answer would be the same.
    ///
    /// With `timeout` among the codes, an attempt whose answer has not begun in time
    /// (``CallOptions/firstResponseTimeout``) is sent again, but never a call that has timed out itself. With
    /// `notConnected` and the codes of connecting, a call that found no connection waits for one.
    ///
    /// - Parameters:
    ///   - maximumAttempts: The number of times that a request may be sent in all, at least 1. Attempts that found no
    ///     connection do not count.
    ///   - backoff: The back-off before each retry: by default with full jitter, below a bound that doubles from 100 ms
    ///     to 5 s. Its `maximumRounds` and `resetAfter` have no effect here.
    ///   - codes: The failures after which a call is sent again; ``defaultCodes`` by default.
    public init(
        maximumAttempts: Int,
        backoff: Backoff = Backoff(base: .milliseconds(100), cap: .seconds(5)),
        codes: Set<SocketError.Code> = RetryPolicy.defaultCodes
    ) {
        self.maximumAttempts = max(1, maximumAttempts)
        self.backoff = backoff
        self.codes = codes
    }

    /// Returns the time to wait before the next attempt; nil if there is none.
    ///
    /// - Parameters:
    ///   - attempts: The number of attempts that have reached a connection.
    ///   - retries: The number of retries so far.
    ///   - hasKey: Whether the request has an idempotency key.
    func delay(
        after error: SocketError,
        attempts: Int,
        retries: Int,
        isIdempotent: Bool,
        hasKey: Bool,
        using generator: inout some RandomNumberGenerator
    ) -> Duration? {
        guard attempts < self.maximumAttempts, self.codes.contains(error.code), error.notExecuted || isIdempotent else {
            return nil
        }
        if hasKey, error.delivery == .answered, let status = error.code.status, status.isKept { return nil }
        return self.backoff.delay(afterFailures: retries, using: &generator)
    }

    /// Returns the time to wait before the next attempt of a request; nil if there is none.
    func delay(
        after error: SocketError,
        of request: SocketRequest,
        attempts: Int,
        retries: Int,
        using generator: inout some RandomNumberGenerator
    ) -> Duration? {
        self.delay(
            after: error,
            attempts: attempts,
            retries: retries,
            isIdempotent: request.options.isIdempotent,
            hasKey: request.options.idempotencyKey != nil,
            using: &generator
        )
    }
}
