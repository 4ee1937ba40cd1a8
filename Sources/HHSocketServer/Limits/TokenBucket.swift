import NIOCore

/// The bucket of requests that one connection may still make, or of connections that one address may. The time is
/// passed in.
struct TokenBucket: Sendable {
    private let rate: RequestRate
    private var tokens: Double
    private var filled: NIODeadline

    init(_ rate: RequestRate, now: NIODeadline) {
        self.rate = rate
        self.tokens = Double(rate.burst)
        self.filled = now
    }

    private func tokens(at now: NIODeadline) -> Double {
        guard now > self.filled else { return self.tokens }
        let seconds = Double((now - self.filled).nanoseconds) / 1e9
        return min(Double(self.rate.burst), self.tokens + seconds * self.rate.perSecond)
    }

    func hasToken(now: NIODeadline) -> Bool { self.tokens(at: now) >= 1 }

    /// Whether it holds as much as it may.
    func isFull(now: NIODeadline) -> Bool { self.tokens(at: now) >= Double(self.rate.burst) }

    /// Takes a token; false if there is none.
    mutating func take(now: NIODeadline) -> Bool {
        self.tokens = self.tokens(at: now)
        self.filled = max(self.filled, now)
        guard self.tokens >= 1 else { return false }
        self.tokens -= 1
        return true
    }
}
