// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// A bound of the lines that peers may cause in the log. The time is passed in.
struct LogBudget: Sendable {
    /// Lines a second, and as many at once.
    static let linesPerSecond = 10
    /// Lines that wait for a log that is slow, at most.
    static let maximumWaiting = 64

    private var bucket: TokenBucket
    private var waiting = 0
    private var suppressed = 0

    init(now: NIODeadline) {
        let rate = RequestRate(perSecond: Double(Self.linesPerSecond), burst: Self.linesPerSecond)
        self.bucket = TokenBucket(rate, now: now)
    }

    /// Requests a line. Nil if there are too many; otherwise the number of lines that were omitted since the last one,
    /// and ``written()`` must be called.
    mutating func begin(now: NIODeadline) -> Int? {
        guard self.waiting < Self.maximumWaiting, self.bucket.take(now: now) else {
            self.suppressed += 1
            return nil
        }
        self.waiting += 1
        defer { self.suppressed = 0 }
        return self.suppressed
    }

    mutating func written() {
        self.waiting -= 1
    }
}
