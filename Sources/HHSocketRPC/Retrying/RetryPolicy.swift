import HHSocket

/// When a call that failed is sent again, within its timeout.
///
/// Sent again is a call of which it is known that the server did not run it (``HHSocket/SocketError/notExecuted``), and
/// any other only where its request says that running it twice does no harm (``SocketRequest/isIdempotent``). A retry
/// waits for a connection if there is none.
public struct RetryPolicy: Hashable, Sendable {
    /// How often the request may be sent in all. Attempts that found no connection do not count. 1 at least.
    public var maximumAttempts: Int
    /// The wait before each retry: its bound doubles from 100 ms to 5 s, and all of it is left to chance, by default.
    /// Its `maximumRounds` and `resetAfter` mean nothing here.
    public var backoff: Backoff
    /// The failures after which a call is sent again; ``defaultCodes`` by default.
    ///
    /// A request with an idempotency key is not sent again after an answer that the server keeps for the key
    /// (``HHSocket/Status/isKept``), whatever the codes are: the answer would be the same.
    ///
    /// With `timeout` it is an attempt whose answer has not begun in time (``SocketRequest/firstResponseTimeout``) that
    /// is sent again, never a call whose time is over. With `notConnected` and the codes of connecting a call that
    /// found no connection waits for one.
    public var codes: Set<SocketError.Code>

    /// The connection was lost, the answer did not begin in time, a checksum was wrong on either side, or the server
    /// had too much to do or was about to end.
    ///
    /// The statuses among them are transient (``HHSocket/Status/isTransient``), and likely to pass within a call's
    /// timeout.
    public static let defaultCodes: Set<SocketError.Code> = [
        .connectionLost, .timeout, .lostPacket, .checksumMismatch, .overloaded, .draining,
    ]

    /// No retries.
    public static let none = RetryPolicy(maximumAttempts: 1)

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
    ///   - attempts: How many have reached a connection.
    ///   - retries: How many attempts followed another so far.
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
}
