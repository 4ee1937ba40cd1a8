import NIOCore

/// Decides when to ping and when the peer is dead. Told the time; keeps none itself.
///
/// Its owner calls ``tick(now:)`` at ``nextTick(now:)``, and computes that anew after every other call.
package struct HeartbeatMonitor: Sendable {
    package enum Action: Equatable, Sendable {
        /// Send a ping, and report ``bytesSent(now:)`` when it leaves.
        case ping
        /// Close the connection, and report ``connectionLost()``.
        case peerIsDead(silentFor: TimeAmount)
    }

    /// What became of a ping.
    package struct Outcome: Equatable, Sendable {
        /// Whether a byte came from the peer.
        package var isAnswered: Bool
        /// From the ping to the next byte. Nil where no byte came, or where it is not known which ping it answers, or
        /// how long the ping waited on our side. A byte may come for another reason, so this is no more than an
        /// estimate.
        package var roundTripTime: TimeAmount?
        /// The interval for which the connection had been idle both ways before the ping, and which has so been shown
        /// to be short enough, or too long, for the network; nil where nothing has been shown.
        package var testedInterval: Duration?

        package init(isAnswered: Bool, roundTripTime: TimeAmount? = nil, testedInterval: Duration? = nil) {
            self.isAnswered = isAnswered
            self.roundTripTime = roundTripTime
            self.testedInterval = testedInterval
        }
    }

    /// Pings since the last byte came.
    private struct Series {
        var firstPing: NIODeadline
        var lastPing: NIODeadline
        /// Reply timeouts that have passed.
        var timeouts = 0
        /// How many of them the peer survives.
        var misses: Int
        var wasBlocked = false
        /// What an answer shows.
        var intervalIfAnswered: TimeAmount?
        /// What no answer shows.
        var intervalIfLost: TimeAmount?
    }

    private let replyTimeout: TimeAmount
    private let misses: Int
    /// Whether we ping; else we wait for the peer's pings.
    package let pings: Bool
    private(set) var interval: TimeAmount
    private var lastSent: NIODeadline
    private var lastReceived: NIODeadline
    /// From when on the silence counts where we do not ping.
    private var silentSince: NIODeadline
    private var series: Series?
    private var isPaused = false
    private var isReadingSuspended = false
    /// A probe that was asked for while reading was suspended: how many reply timeouts the peer survives.
    private var owedProbe: Int?
    /// How long the machine had slept when it was last asked whether a ping is due.
    private var slept = Duration.zero

    /// Whether no time passes for this clock.
    private var standsStill: Bool { self.isPaused || self.isReadingSuspended }

    /// How long after a ping was due its peer is dead.
    private var timeToDeath: TimeAmount {
        let (nanoseconds, overflow) = self.replyTimeout.nanoseconds
            .multipliedReportingOverflow(by: Int64(clamping: self.misses.addingClamped(1)))
        return overflow ? .nanoseconds(.max) : .nanoseconds(nanoseconds)
    }

    /// - Parameters:
    ///   - interval: What the policy's strategy says; see ``setInterval(_:)``. At least 1 ms.
    ///   - canPing: Whether the format has a ping for this side. Else the monitor behaves as with
    ///     ``HeartbeatPolicy/Mode-swift.enum/expectPings``.
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

    /// Any byte proves that the peer lives, not only an answer to the ping. Returns what became of the ping, if one
    /// waited for its answer.
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

    /// While our own bytes cannot leave, no answer can be expected: the clock stands still.
    package mutating func writeIsBlocked(now: NIODeadline) {
        self.lastSent = now
        self.lastReceived = max(self.lastReceived, now)
        self.silentSince = max(self.silentSince, now)
        self.series?.lastPing = now
        self.series?.wasBlocked = true
    }

    /// The ping that was due could not be made: nothing waits for an answer, and the next is due after another
    /// interval.
    package mutating func pingWasSkipped(now: NIODeadline) {
        self.series = nil
        self.lastSent = now
        self.lastReceived = max(self.lastReceived, now)
    }

    /// The connection has ended without our doing, or by ``Action/peerIsDead(silentFor:)``. Returns what became of the
    /// ping, if one waited for its answer.
    package mutating func connectionLost() -> Outcome? {
        guard let series = self.series else { return nil }
        self.series = nil
        return Outcome(isAnswered: false, testedInterval: series.intervalIfLost.map { Duration($0) })
    }

    // MARK: Pausing

    /// From now on no ping is due and the peer does not die, as where the process may be suspended at any moment. A
    /// ping that waits for its answer is forgotten.
    package mutating func pause() {
        self.isPaused = true
        self.series = nil
    }

    /// Goes on. A ping whose time has passed is due at once. Where the peer pings, it has the whole time for it again,
    /// for what came meanwhile may not have been read.
    package mutating func resume(now: NIODeadline) {
        guard self.isPaused else { return }
        self.isPaused = false
        self.silentSince = max(self.silentSince, now)
    }

    // MARK: Reading

    /// From now on our side takes no bytes, so that none can prove that the peer lives: no ping is due and the peer
    /// does not die. A ping that waits for its answer is forgotten. Has nothing to do with ``pause()``: time passes
    /// again once both have ended.
    package mutating func suspendReading() {
        self.isReadingSuspended = true
        self.series = nil
    }

    /// Goes on, as if a byte had just come: whether one did meanwhile is not known, so a ping that is due now shows
    /// nothing about the interval. Returns the probe that was asked for meanwhile.
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

    /// When to call ``tick(now:)`` next, if nothing happens before.
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

    /// When to call ``tick(now:)`` next, if it is not to be asked again before: an answer to a ping may make another
    /// one due sooner than that ping's timeout.
    package func nextTick(now: NIODeadline) -> NIODeadline {
        self.standsStill ? .distantFuture : min(self.nextDeadline, now.advanced(clamping: self.interval))
    }

    /// - Parameter slept: How long the machine has slept, in all: time that `now` does not count.
    package mutating func tick(now: NIODeadline, slept: Duration = .zero) -> Action? {
        let sleep = TimeAmount(clamping: slept - self.slept)
        self.slept = slept
        guard now >= self.nextDeadline else { return nil }
        guard self.pings else { return .peerIsDead(silentFor: now - self.lastReceived) }
        guard var series = self.series else {
            let idle = now - max(self.lastSent, self.lastReceived)
            // Timers come late and answers take time: idle for 90 % of the interval is idle. After much more than the
            // interval, as when the machine slept, a dead connection tells nothing about the interval.
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

    /// Asks at once whether the peer lives, as when a call timed out or the app came to the foreground. A ping that
    /// waits for its answer already is the probe. Where we do not ping this does the same as ``tick(now:)``. While
    /// reading is suspended it has to wait for ``resumeReading(now:)``.
    ///
    /// - Parameter misses: How many reply timeouts the peer survives, if other than the policy's number. Where a ping
    ///   waits already it can only make them fewer.
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
