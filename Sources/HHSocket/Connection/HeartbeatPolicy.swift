/// When a side pings, and when it takes the other for dead.
public struct HeartbeatPolicy: Hashable, Sendable {
    /// A ping is due once this long has passed since the last byte sent or since the last byte received, whichever
    /// comes first.
    public var interval: Duration
    /// How long one ping waits for a byte from the peer.
    public var replyTimeout: Duration
    /// How many pings may stay unanswered before the peer is dead: it is after `misses + 1` reply timeouts.
    public var misses: Int

    /// - Parameters:
    ///   - interval: 60 s by default.
    ///   - replyTimeout: 8 s by default, as Tencent Mars waits for its no-op.
    ///   - misses: 1 by default.
    public init(interval: Duration = .seconds(60), replyTimeout: Duration = .seconds(8), misses: Int = 1) {
        self.interval = interval
        self.replyTimeout = replyTimeout
        self.misses = misses
    }
}
