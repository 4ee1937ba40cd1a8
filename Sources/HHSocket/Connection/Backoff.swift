/// How long to wait between rounds of connection attempts.
///
/// Full jitter: each wait is drawn evenly from zero to the bound, the first one too, so that the clients of a server
/// that dies do not come back as one herd.
public struct Backoff: Hashable, Sendable {
    /// The bound of the first wait.
    public var base: Duration
    /// What the bound is multiplied with after each round that failed.
    public var factor: Double
    /// The bound never exceeds this.
    public var cap: Duration
    /// The bound starts over once a connection has been ready for this long, so that a server which accepts and closes
    /// does not get a tight loop.
    public var resetAfter: Duration
    /// After this many rounds in a row without a stable connection attempts stop; nil for never.
    public var maximumRounds: Int?

    /// - Parameters:
    ///   - base: 1 s by default.
    ///   - factor: 2 by default.
    ///   - cap: 60 s by default.
    ///   - resetAfter: 10 s by default.
    ///   - maximumRounds: nil by default.
    public init(
        base: Duration = .seconds(1),
        factor: Double = 2,
        cap: Duration = .seconds(60),
        resetAfter: Duration = .seconds(10),
        maximumRounds: Int? = nil
    ) {
        self.base = base
        self.factor = factor
        self.cap = cap
        self.resetAfter = resetAfter
        self.maximumRounds = maximumRounds
    }

    /// The longest that the wait after `failures` earlier rounds may take.
    func bound(afterFailures failures: Int) -> Duration {
        var bound = self.base.inSeconds
        let cap = self.cap.inSeconds
        var remaining = failures
        while remaining > 0, bound < cap, self.factor > 1 {
            bound *= self.factor
            remaining -= 1
        }
        return .seconds(max(0, min(bound, cap)))
    }

    /// A wait after `failures` earlier rounds.
    func delay(afterFailures failures: Int, using generator: inout some RandomNumberGenerator) -> Duration {
        .seconds(Double.random(in: 0...self.bound(afterFailures: failures).inSeconds, using: &generator))
    }
}
