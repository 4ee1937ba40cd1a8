import NIOCore

/// The bucket of requests that one connection may still make. The time is passed in.
struct TokenBucket: Sendable {
    private let rate: RequestRate
    private var tokens: Double
    private var filled: NIODeadline

    init(_ rate: RequestRate, now: NIODeadline) {
        self.rate = rate
        self.tokens = Double(rate.burst)
        self.filled = now
    }

    /// Takes a token; false if there is none.
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
