// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import NIOCore

/// The outcomes of the latest calls to the current server.
struct ErrorRateWindow {
    /// The number of wrong calls, and of all considered ones.
    struct Verdict: Equatable {
        var wrong: Int
        var calls: Int
    }

    /// Calls that ended at the same time, such as those answered in one read.
    private struct Moment {
        var time: NIODeadline
        /// The number of calls that had ended before.
        var calls: Int
    }

    private let policy: ErrorRatePolicy
    private let maximumAge: TimeAmount
    /// The number of calls that have ended since the last clearing.
    private var count = 0
    /// Oldest first; those within the window, and perhaps one more.
    private var moments: Deque<Moment> = []
    private var latest = NIODeadline.distantPast
    /// The number of calls that had ended when each of the failed ones did.
    private var wrong: Deque<Int> = []

    init(_ policy: ErrorRatePolicy) {
        self.policy = policy
        self.maximumAge = TimeAmount(clamping: policy.maximumAge)
    }

    /// Counts a call that has ended. Returns a verdict, and starts over, if too many calls were wrong.
    mutating func ended(isWrong: Bool, now: NIODeadline) -> Verdict? {
        if now != self.latest { self.begin(now) }
        self.count += 1
        return isWrong ? self.verdict(now) : nil
    }

    private mutating func begin(_ now: NIODeadline) {
        while self.moments.count > 1, self.moments[1].calls <= self.count - self.policy.windowLength {
            self.moments.removeFirst()
        }
        self.moments.append(Moment(time: now, calls: self.count))
        self.latest = now
    }

    private mutating func verdict(_ now: NIODeadline) -> Verdict? {
        while let first = self.moments.first, now - first.time > self.maximumAge { self.moments.removeFirst() }
        let start = max(self.moments.first?.calls ?? self.count, self.count - self.policy.windowLength)
        self.wrong.append(self.count)
        while let first = self.wrong.first, first <= start { self.wrong.removeFirst() }
        let verdict = Verdict(wrong: self.wrong.count, calls: self.count - start)
        guard verdict.calls >= self.policy.minimumCalls,
            Double(verdict.wrong) >= self.policy.threshold * Double(verdict.calls)
        else { return nil }
        self.clear()
        return verdict
    }

    /// Starts over, as for another server.
    mutating func clear() {
        self.count = 0
        self.moments.removeAll(keepingCapacity: true)
        self.latest = .distantPast
        self.wrong.removeAll(keepingCapacity: true)
    }
}

extension ErrorRateWindow {
    /// Whether a call with this outcome failed; nil if the outcome does not concern the server.
    static func judge(_ error: SocketError?) -> Bool? {
        guard let error else { return false }
        switch error.code {
        case .unknown, .lostPacket, .checksumMismatch: return true
        case .timeout: return error.delivery == .notSent ? nil : true
        default: return error.delivery == .answered && !error.notExecuted ? false : nil
        }
    }
}
