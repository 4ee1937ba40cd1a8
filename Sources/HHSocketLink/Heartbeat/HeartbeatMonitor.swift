// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Decides when to ping and when the peer is dead. The time is passed in.
///
/// Its owner calls ``tick(now:slept:)`` at ``nextTick(now:)``, and recomputes that after every other call.
package struct HeartbeatMonitor: Sendable {
    package enum Action: Equatable, Sendable {
        /// Send a ping, and report ``bytesSent(now:)`` when it is written.
        case ping
        /// Close the connection, and report ``connectionLost()``.
        case peerIsDead(silentFor: TimeAmount)
    }

    /// The outcome of a ping.
    package struct Outcome: Equatable, Sendable {
        /// Whether a byte arrived from the peer.
        package var isAnswered: Bool
        /// The time from the ping to the next byte. Nil if no byte arrived, or if it is not known which ping it answers
        /// or how long the ping waited on our side. A byte may have another cause, so this is only an estimate.
        package var roundTripTime: TimeAmount?
        /// The interval for which the connection was idle both ways before the ping, and which the outcome proves short
        /// enough, or too long, for the network; nil if it proves nothing.
        package var testedInterval: Duration?

        package init(isAnswered: Bool, roundTripTime: TimeAmount? = nil, testedInterval: Duration? = nil) {
            self.isAnswered = isAnswered
            self.roundTripTime = roundTripTime
            self.testedInterval = testedInterval
        }
    }

    /// Pings since the last received byte.
    private struct Series {
        var firstPing: NIODeadline
        var lastPing: NIODeadline
        /// The number of reply timeouts that have passed.
        var timeouts = 0
        /// The number of reply timeouts that the peer survives.
        var misses: Int
        var wasBlocked = false
        /// The interval that an answer proves short enough.
        var intervalIfAnswered: TimeAmount?
        /// The interval that the lack of an answer proves too long.
        var intervalIfLost: TimeAmount?
    }

    private let replyTimeout: TimeAmount
    private let misses: Int
    /// Whether we ping; else we wait for the peer's pings.
    package let pings: Bool
    private(set) var interval: TimeAmount
    private var lastSent: NIODeadline
    private var lastReceived: NIODeadline
    /// The start of the peer's silence, where we do not ping.
    private var silentSince: NIODeadline
    private var series: Series?
    private var isPaused = false
    private var isReadingSuspended = false
    /// The probe that was requested while reading was suspended: the number of reply timeouts that the peer survives.
    private var owedProbe: Int?
    /// The total time that the machine had slept at the last ``tick(now:slept:)``.
    private var slept = Duration.zero

    /// Whether the clock is stopped.
    private var standsStill: Bool { self.isPaused || self.isReadingSuspended }

    /// The time from a due ping until the peer is dead: `misses + 1` reply timeouts.
    private var timeToDeath: TimeAmount {
        let (nanoseconds, overflow) = self.replyTimeout.nanoseconds
            .multipliedReportingOverflow(by: Int64(clamping: self.misses.addingClamped(1)))
        return overflow ? .nanoseconds(.max) : .nanoseconds(nanoseconds)
    }

    /// - Parameters:
    ///   - interval: The interval of the policy's strategy; see ``setInterval(_:)``. At least 1 ms.
    ///   - canPing: Whether the format has a ping for this side. If not, the monitor behaves as with
    ///     ``HeartbeatPolicy/Mode/expectPings``.
    package init(_ policy: HeartbeatPolicy, interval: Duration, canPing: Bool, now: NIODeadline) {
        self.interval = max(.milliseconds(1), TimeAmount(clamping: interval))
        self.replyTimeout = max(.milliseconds(1), TimeAmount(clamping: policy.replyTimeout))
        self.misses = max(0, policy.misses)
        self.pings = canPing && policy.mode == .ping
        self.lastSent = now
        self.lastReceived = now
        self.silentSince = now
    }

    /// Whether a ping of ours waits for an answer.
    package var awaitsReply: Bool { self.series != nil }

    /// Changes the interval, counted from the same bytes as before. A ping that waits for its answer is not affected.
    package mutating func setInterval(_ interval: Duration) {
        self.interval = max(.milliseconds(1), TimeAmount(clamping: interval))
    }

    // MARK: What happens

    package mutating func bytesSent(now: NIODeadline) {
        self.lastSent = now
    }

    /// Records that bytes arrived: any byte proves that the peer lives, not only an answer to the ping. Returns the
    /// outcome of the ping that waited for an answer, if there was one.
    @discardableResult
    package mutating func bytesReceived(now: NIODeadline) -> Outcome? {
        self.lastReceived = now
        self.silentSince = now
        guard let series = self.series else { return nil }
        self.series = nil
        return Outcome(
            isAnswered: true,
            roundTripTime: series.timeouts == 0 && !series.wasBlocked ? now - series.firstPing : nil,
            testedInterval: series.intervalIfAnswered.map { Duration($0) }
        )
    }

    /// Records that our own bytes cannot be written. No answer can be expected meanwhile, so the clock stops.
    package mutating func writeIsBlocked(now: NIODeadline) {
        self.lastSent = now
        self.lastReceived = max(self.lastReceived, now)
        self.silentSince = max(self.silentSince, now)
        self.series?.lastPing = now
        self.series?.wasBlocked = true
    }

    /// Records that the ping that was due could not be made: no answer is awaited, and the next ping is due after
    /// another interval.
    package mutating func pingWasSkipped(now: NIODeadline) {
        self.series = nil
        self.lastSent = now
        self.lastReceived = max(self.lastReceived, now)
    }

    /// Records that the connection ended unexpectedly, or by ``Action/peerIsDead(silentFor:)``. Returns the outcome of
    /// the ping that waited for an answer, if there was one.
    package mutating func connectionLost() -> Outcome? {
        guard let series = self.series else { return nil }
        self.series = nil
        return Outcome(isAnswered: false, testedInterval: series.intervalIfLost.map { Duration($0) })
    }

    // MARK: Pausing

    /// Stops the clock, for a process that may be suspended at any time: no ping is due and the peer does not die. A
    /// ping that waits for its answer is abandoned.
    package mutating func pause() {
        self.isPaused = true
        self.series = nil
    }

    /// Resumes after ``pause()``. A ping whose time has passed is due at once. If the peer pings, its time starts over,
    /// since its bytes may not have been read meanwhile.
    package mutating func resume(now: NIODeadline) {
        guard self.isPaused else { return }
        self.isPaused = false
        self.silentSince = max(self.silentSince, now)
    }

    // MARK: Reading

    /// Records that our side reads no bytes, so that none can prove that the peer lives: no ping is due and the peer
    /// does not die. A ping that waits for its answer is abandoned. Independent of ``pause()``: the clock continues
    /// once both have ended.
    package mutating func suspendReading() {
        self.isReadingSuspended = true
        self.series = nil
    }

    /// Resumes as if a byte had just arrived: it is not known whether one did meanwhile, so a ping that is due now
    /// proves nothing about the interval. Returns the probe that was requested meanwhile.
    package mutating func resumeReading(now: NIODeadline) -> Action? {
        guard self.isReadingSuspended else { return nil }
        self.isReadingSuspended = false
        self.lastReceived = max(self.lastReceived, now)
        self.silentSince = max(self.silentSince, now)
        guard let misses = self.owedProbe else { return nil }
        self.owedProbe = nil
        return self.probe(now: now, misses: misses)
    }

    // MARK: Time

    /// The time of the next ``tick(now:slept:)``, if nothing happens before.
    package var nextDeadline: NIODeadline {
        if self.standsStill {
            .distantFuture
        } else if !self.pings {
            self.silentSince.advanced(clamping: self.interval).advanced(clamping: self.timeToDeath)
        } else if let series = self.series {
            series.lastPing.advanced(clamping: self.replyTimeout)
        } else {
            min(self.lastSent, self.lastReceived).advanced(clamping: self.interval)
        }
    }

    /// The time of the next ``tick(now:slept:)`` for an owner that does not recompute it before: the answer to a ping
    /// may make another ping due sooner than the timeout of the first.
    package func nextTick(now: NIODeadline) -> NIODeadline {
        self.standsStill ? .distantFuture : min(self.nextDeadline, now.advanced(clamping: self.interval))
    }

    /// - Parameter slept: The total time that the machine has slept, which `now` does not include.
    package mutating func tick(now: NIODeadline, slept: Duration = .zero) -> Action? {
        let sleep = TimeAmount(clamping: slept - self.slept)
        self.slept = slept
        guard now >= self.nextDeadline else { return nil }
        guard self.pings else { return .peerIsDead(silentFor: now - self.lastReceived) }
        guard var series = self.series else {
            let idle = now - max(self.lastSent, self.lastReceived)
            // Timers are late and answers take time, so a connection counts as idle after 90 % of the interval. After
            // much more than the interval, for example when the machine slept, a dead connection proves nothing about
            // the interval.
            let isTested = idle.nanoseconds >= self.interval.nanoseconds / 10 * 9
            let excess = idle.nanoseconds - self.interval.nanoseconds
            let isFair = isTested && max(excess, 0) + max(sleep.nanoseconds, 0) <= self.interval.nanoseconds / 10
            self.series = Series(
                firstPing: now,
                lastPing: now,
                misses: self.misses,
                intervalIfAnswered: isTested ? self.interval : nil,
                intervalIfLost: isFair ? self.interval : nil
            )
            return .ping
        }
        series.timeouts += 1
        if series.timeouts <= series.misses { series.lastPing = now }
        self.series = series
        return series.timeouts <= series.misses ? .ping : .peerIsDead(silentFor: now - self.lastReceived)
    }

    /// Checks at once whether the peer lives, for example when a call timed out or the app returned to the foreground.
    /// A ping that already waits for its answer is the probe. If this side does not ping, this is the same as
    /// ``tick(now:slept:)``. While reading is suspended the probe waits for ``resumeReading(now:)``.
    ///
    /// - Parameter misses: The number of reply timeouts that the peer survives; nil for the policy's. It can only lower
    ///   the number of a ping that already waits.
    package mutating func probe(now: NIODeadline, misses: Int? = nil) -> Action? {
        guard !self.isPaused else { return nil }
        guard self.pings else { return self.tick(now: now, slept: self.slept) }
        let misses = max(0, misses ?? self.misses)
        guard !self.isReadingSuspended else {
            self.owedProbe = min(self.owedProbe ?? misses, misses)
            return nil
        }
        if let series = self.series {
            self.series?.misses = min(series.misses, misses)
            return nil
        }
        self.series = Series(firstPing: now, lastPing: now, misses: misses)
        return .ping
    }
}
