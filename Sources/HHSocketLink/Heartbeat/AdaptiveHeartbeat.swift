// SPDX-License-Identifier: Apache-2.0
/// Finds the longest interval for which the network keeps an idle connection alive, so that the radio is woken as
/// seldom as possible. Routers with network address translation forget connections that are idle for longer than some
/// undisclosed time, and silently drop later packets.
///
/// It starts at ``minimum``, grows by ``step`` after enough answered pings, and falls back by a step when pings stay
/// unanswered; so it settles within one step below the network's limit. While the app is active the interval is
/// ``minimum``: a dead connection then costs more than the energy of a ping.
///
/// The defaults are those of Tencent Mars, the long link under WeChat, except ``reprobeAfter``, which is ours. Mars
/// subtracts 20 s from the interval it found, since its timers count from the last ping; ours count from the last byte
/// and need no such allowance.
package struct AdaptiveHeartbeat: HeartbeatStrategy, Hashable {
    /// The shortest interval, with which the search starts.
    package var minimum: Duration
    /// The longest interval. Less than ``minimum`` counts as ``minimum``.
    package var maximum: Duration
    /// The step by which the interval grows and falls back. With zero or less it stays at ``minimum``.
    package var step: Duration
    /// The number of answered pings required to grow beyond ``minimum``.
    package var successesAtMinimum: Int
    /// The number of answered pings required to grow at any other interval.
    package var successesPerStep: Int
    /// The number of consecutive unanswered pings at one interval required to fall back. One may have other causes,
    /// such as a server that restarts.
    package var failuresBeforeFallingBack: Int
    /// The number of consecutive answered pings below a failed interval after which that interval is tried again, since
    /// networks change under the same name; nil for never.
    package var reprobeAfter: Int?

    /// - Parameters:
    ///   - minimum: 210 s by default.
    ///   - maximum: 600 s by default.
    ///   - step: 60 s by default.
    ///   - successesAtMinimum: 3 by default, 1 at least.
    ///   - successesPerStep: 5 by default, 1 at least.
    ///   - failuresBeforeFallingBack: 2 by default, 1 at least.
    ///   - reprobeAfter: 100 by default, which at intervals of 5 minutes are 8 hours.
    package init(
        minimum: Duration = .seconds(210),
        maximum: Duration = .seconds(600),
        step: Duration = .seconds(60),
        successesAtMinimum: Int = 3,
        successesPerStep: Int = 5,
        failuresBeforeFallingBack: Int = 2,
        reprobeAfter: Int? = 100
    ) {
        self.minimum = minimum
        self.maximum = maximum
        self.step = step
        self.successesAtMinimum = successesAtMinimum
        self.successesPerStep = successesPerStep
        self.failuresBeforeFallingBack = failuresBeforeFallingBack
        self.reprobeAfter = reprobeAfter
    }

    package func interval(for history: HeartbeatHistory) -> Duration {
        var search = Search(self)
        if history.isApplicationActive { return search.minimum }
        for run in history.runs { search.observe(run) }
        return search.current
    }
}

/// The state of the search after the runs observed so far.
private struct Search {
    let minimum: Duration
    private let maximum: Duration
    private let step: Duration
    private let rules: AdaptiveHeartbeat
    private(set) var current: Duration
    /// The shortest interval known to be too long.
    private var ceiling: Duration?
    /// The number of consecutive answered pings at `current`.
    private var successes = 0
    /// The number of consecutive unanswered pings at one interval.
    private var failures: (interval: Duration, count: Int)?

    init(_ rules: AdaptiveHeartbeat) {
        self.rules = rules
        self.minimum = rules.minimum.asHeartbeatInterval
        self.maximum = max(self.minimum, rules.maximum.asHeartbeatInterval)
        self.step = rules.step > .zero ? rules.step.asHeartbeatInterval : .zero
        self.current = self.minimum
    }

    mutating func observe(_ run: HeartbeatHistory.Run) {
        if run.isAnswered {
            self.answered(run.interval, run.count)
        } else {
            self.unanswered(run.interval, run.count)
        }
    }

    private mutating func answered(_ interval: Duration, _ count: Int) {
        if let failures = self.failures, interval >= failures.interval { self.failures = nil }
        if let ceiling = self.ceiling, interval >= ceiling { self.ceiling = nil }
        // A shorter interval, such as while the app is active, proves nothing about the current one.
        guard interval >= self.current else { return }
        if interval > self.current {
            self.current = min(interval, self.maximum)
            self.successes = 0
        }
        self.successes = self.successes.addingClamped(count)
        self.growIfProved()
    }

    private mutating func growIfProved() {
        let next = min(self.current + self.step, self.maximum)
        guard next > self.current else { return }
        if let ceiling = self.ceiling, ceiling <= next {
            guard let reprobeAfter = self.rules.reprobeAfter, self.successes >= reprobeAfter else { return }
            self.ceiling = nil
        } else {
            let isAtMinimum = self.current == self.minimum
            let needed = isAtMinimum ? self.rules.successesAtMinimum : self.rules.successesPerStep
            guard self.successes >= needed else { return }
        }
        self.current = next
        self.successes = 0
    }

    private mutating func unanswered(_ interval: Duration, _ count: Int) {
        self.successes = 0
        let before = if let failures = self.failures, failures.interval == interval { failures.count } else { 0 }
        let failures = before.addingClamped(count)
        self.failures = (interval, failures)
        // Earlier runs may have been dropped from the history; that this interval was tried shows that the search had
        // got there.
        self.current = max(self.current, min(interval, self.maximum))
        guard failures >= self.rules.failuresBeforeFallingBack else { return }
        self.failures = nil
        self.ceiling = min(interval, self.ceiling ?? interval)
        self.current = max(self.minimum, min(self.current, interval - self.step))
    }
}
