import NIOCore

/// Decides when to ping and when the peer is dead. Told the time; keeps none itself.
package struct HeartbeatMonitor: Sendable {
    package enum Action: Equatable, Sendable {
        case ping
        case peerIsDead(silentFor: TimeAmount)
    }

    private struct Unanswered {
        var lastPing: NIODeadline
        var count: Int
    }

    private let interval: TimeAmount
    private let replyTimeout: TimeAmount
    private let misses: Int
    private var lastSent: NIODeadline
    private var lastReceived: NIODeadline
    private var unanswered: Unanswered?

    package init(_ policy: HeartbeatPolicy, now: NIODeadline) {
        self.interval = max(.milliseconds(1), TimeAmount(policy.interval))
        self.replyTimeout = max(.milliseconds(1), TimeAmount(policy.replyTimeout))
        self.misses = max(0, policy.misses)
        self.lastSent = now
        self.lastReceived = now
    }

    /// Whether a ping of ours waits for an answer.
    package var awaitsReply: Bool { self.unanswered != nil }

    package mutating func bytesSent(now: NIODeadline) {
        self.lastSent = now
    }

    /// Any byte proves that the peer lives, not only an answer to the ping.
    package mutating func bytesReceived(now: NIODeadline) {
        self.lastReceived = now
        self.unanswered = nil
    }

    /// While our own bytes cannot leave, no answer can be expected: the clock stands still.
    package mutating func writeIsBlocked(now: NIODeadline) {
        self.lastSent = now
        self.lastReceived = max(self.lastReceived, now)
        self.unanswered?.lastPing = now
    }

    /// When to call ``tick(now:)`` next, if nothing happens before.
    package var nextDeadline: NIODeadline {
        if let unanswered = self.unanswered {
            unanswered.lastPing.advanced(clamping: self.replyTimeout)
        } else {
            min(self.lastSent, self.lastReceived).advanced(clamping: self.interval)
        }
    }

    /// When to call ``tick(now:)`` next, if it is not to be asked again before: an answer to a ping may make another one
    /// due sooner than that ping's timeout.
    package func nextTick(now: NIODeadline) -> NIODeadline {
        min(self.nextDeadline, now.advanced(clamping: self.interval))
    }

    package mutating func tick(now: NIODeadline) -> Action? {
        guard now >= self.nextDeadline else { return nil }
        guard var unanswered = self.unanswered else {
            self.unanswered = Unanswered(lastPing: now, count: 0)
            return .ping
        }
        unanswered.count += 1
        guard unanswered.count <= self.misses else {
            return .peerIsDead(silentFor: now - self.lastReceived)
        }
        unanswered.lastPing = now
        self.unanswered = unanswered
        return .ping
    }
}
