// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The bucket of requests, or of other frames, that one client may still send, or of connections that one address may
/// make. The time is passed in.
struct TokenBucket: Sendable {
    private let rate: RequestRate
    private var tokens: Double
    private var filled: NIODeadline

    init(_ rate: RequestRate, now: NIODeadline) {
        self.rate = rate
        self.tokens = Double(rate.burst)
        self.filled = now
    }

    /// The number of tokens in it.
    func tokens(now: NIODeadline) -> Double {
        guard now > self.filled else { return self.tokens }
        let seconds = Double((now - self.filled).nanoseconds) / 1e9
        return min(Double(self.rate.burst), self.tokens + seconds * self.rate.perSecond)
    }

    func hasToken(now: NIODeadline) -> Bool { self.tokens(now: now) >= 1 }

    /// Whether it holds as much as it may.
    func isFull(now: NIODeadline) -> Bool { self.tokens(now: now) >= Double(self.rate.burst) }

    /// Takes tokens; false if there are fewer.
    mutating func take(_ count: Int = 1, now: NIODeadline) -> Bool {
        self.tokens = self.tokens(now: now)
        self.filled = max(self.filled, now)
        guard self.tokens >= Double(count) else { return false }
        self.tokens -= Double(count)
        return true
    }
}
