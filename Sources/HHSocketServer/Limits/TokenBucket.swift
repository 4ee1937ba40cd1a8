import NIOCore

/// One connection's requests: how many more it may make. Told the time; keeps none itself.
struct TokenBucket: Sendable {
    private let rate: RequestRate
    private var tokens: Double
    private var filled: NIODeadline

    init(_ rate: RequestRate, now: NIODeadline) {
        self.rate = rate
        self.tokens = Double(rate.burst)
        self.filled = now
    }

    /// Whether there was one more.
    mutating func take(now: NIODeadline) -> Bool {
        if now > self.filled {
            let seconds = Double((now - self.filled).nanoseconds) / 1e9
            self.tokens = min(Double(self.rate.burst), self.tokens + seconds * self.rate.perSecond)
            self.filled = now
        }
        guard self.tokens >= 1 else { return false }
        self.tokens -= 1
        return true
    }
}
