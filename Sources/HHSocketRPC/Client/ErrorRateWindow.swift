import DequeModule
import HHSocket
import NIOCore

/// How the latest calls to the present server ended.
struct ErrorRateWindow {
    /// How many calls went wrong, of how many.
    struct Verdict: Equatable {
        var wrong: Int
        var calls: Int
    }

    private let policy: ErrorRatePolicy
    private let maximumAge: TimeAmount
    private var calls: Deque<(end: NIODeadline, isWrong: Bool)> = []
    private var wrong = 0

    init(_ policy: ErrorRatePolicy) {
        self.policy = policy
        self.maximumAge = TimeAmount(policy.maximumAge)
    }

    /// A call has ended. A verdict, if there have been too many wrong ones; then the count begins anew.
    mutating func ended(isWrong: Bool, now: NIODeadline) -> Verdict? {
        if self.calls.count == self.policy.windowLength { self.forgetFirst() }
        self.calls.append((now, isWrong))
        guard isWrong else { return nil }
        self.wrong += 1
        // How old the others are matters only now.
        self.forgetOld(now)
        guard self.calls.count >= self.policy.minimumCalls,
            Double(self.wrong) >= self.policy.threshold * Double(self.calls.count)
        else { return nil }
        defer { self.clear() }
        return Verdict(wrong: self.wrong, calls: self.calls.count)
    }

    /// There is another server, of which nothing is known.
    mutating func clear() {
        self.calls.removeAll(keepingCapacity: true)
        self.wrong = 0
    }

    private mutating func forgetOld(_ now: NIODeadline) {
        while let first = self.calls.first, now - first.end > self.maximumAge { self.forgetFirst() }
    }

    private mutating func forgetFirst() {
        if self.calls.popFirst()?.isWrong == true { self.wrong -= 1 }
    }
}

extension ErrorRateWindow {
    /// Whether a call that ended so went wrong; nil if that tells nothing of the server.
    static func judge(_ error: SocketError?) -> Bool? {
        guard let error else { return false }
        switch error.code {
        case .unknown, .lostPacket, .checksumMismatch: return true
        case .timeout: return error.delivery == .notSent ? nil : true
        default: return error.delivery == .answered && !error.notExecuted ? false : nil
        }
    }
}
