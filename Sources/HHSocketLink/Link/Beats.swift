// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Decides when a link sends a beat and when its peer is dead, in two independent halves. The time is passed in.
///
/// Our half is a ping after idleness in either direction, which the peer must answer in time (``HeartbeatMonitor``), or
/// a beat after our own silence that expects no answer. The peer's half is a limit of its silence, after which it is
/// dead.
package struct Beats: Sendable {
    package enum Action: Equatable, Sendable {
        /// Send a beat.
        case beat
        /// Close the connection.
        case peerIsDead(silentFor: TimeAmount)
    }

    /// Pings that are answered; or, in its mode `expectPings`, the peer's pings.
    private var monitor: HeartbeatMonitor?
    /// Our silence after which a beat is sent that expects no answer.
    private var ourSilence: TimeAmount?
    /// The time that the peer may be silent.
    private var theirSilence: TimeAmount?
    private var lastSent: NIODeadline
    private var lastReceived: NIODeadline
    private var isPaused = false
    private var isReadingSuspended = false

    /// - Parameters:
    ///   - monitor: Pings that are answered, or the peer's.
    ///   - ourSilence: The time without a sent byte after which a beat is sent that expects no answer.
    ///   - theirSilence: The time without a received byte after which the peer counts as dead.
    package init(
        monitor: HeartbeatMonitor? = nil,
        ourSilence: TimeAmount? = nil,
        theirSilence: TimeAmount? = nil,
        now: NIODeadline
    ) {
        self.monitor = monitor
        self.ourSilence = ourSilence.map { max(.milliseconds(1), $0) }
        self.theirSilence = theirSilence.map { max(.milliseconds(1), $0) }
        self.lastSent = now
        self.lastReceived = now
    }

    /// Whether our beats are answered.
    package var pings: Bool { self.monitor?.pings ?? false }

    // MARK: What happens

    package mutating func bytesSent(now: NIODeadline) {
        self.lastSent = now
        self.monitor?.bytesSent(now: now)
    }

    package mutating func bytesReceived(now: NIODeadline) -> HeartbeatMonitor.Outcome? {
        self.lastReceived = now
        return self.monitor?.bytesReceived(now: now)
    }

    /// While our own bytes cannot be sent, no answer can be expected, so the clock of pings stops. A peer that sends
    /// beats by itself can still be detected as dead, unless nothing is read either.
    package mutating func writeIsBlocked(now: NIODeadline, isReading: Bool) {
        self.lastSent = now
        if !isReading { self.lastReceived = max(self.lastReceived, now) }
        self.monitor?.writeIsBlocked(now: now)
    }

    /// The beat that was due could not be made.
    package mutating func beatWasSkipped(now: NIODeadline) {
        self.lastSent = now
        self.monitor?.pingWasSkipped(now: now)
    }

    package mutating func connectionLost() -> HeartbeatMonitor.Outcome? { self.monitor?.connectionLost() }

    package mutating func change(_ change: BeatsChange, now: NIODeadline) {
        switch change {
        case .pause:
            self.isPaused = true
            self.monitor?.pause()
        case .resume:
            self.isPaused = false
            self.lastReceived = max(self.lastReceived, now)
            self.monitor?.resume(now: now)
        case .interval(let interval):
            self.monitor?.setInterval(interval)
            if self.ourSilence != nil { self.ourSilence = max(.milliseconds(1), TimeAmount(clamping: interval)) }
        }
    }

    /// Suspends or resumes reading. Meanwhile no byte can prove that the peer lives, so its clock stops. Beats that
    /// expect no answer continue.
    package mutating func setReading(isSuspended: Bool, now: NIODeadline) -> Action? {
        self.isReadingSuspended = isSuspended
        if isSuspended {
            self.monitor?.suspendReading()
            return nil
        }
        self.lastReceived = max(self.lastReceived, now)
        return self.monitor?.resumeReading(now: now).map { Self.action($0) }
    }

    // MARK: Time

    /// The time of the next ``tick(now:slept:)``, if it does not change before.
    package func nextTick(now: NIODeadline) -> NIODeadline {
        guard !self.isPaused else { return .distantFuture }
        var next = self.monitor?.nextTick(now: now) ?? .distantFuture
        if let due = self.ourBeatIsDue { next = min(next, due) }
        if let due = self.peerDies { next = min(next, due) }
        return next
    }

    /// The time at which our next beat without an answer is due. While reading is suspended, pings become such beats.
    private var ourBeatIsDue: NIODeadline? {
        if let silence = self.ourSilence { return self.lastSent.advanced(clamping: silence) }
        guard self.isReadingSuspended, let monitor = self.monitor, monitor.pings else { return nil }
        return self.lastSent.advanced(clamping: monitor.interval)
    }

    private var peerDies: NIODeadline? {
        guard let silence = self.theirSilence, !self.isReadingSuspended else { return nil }
        return self.lastReceived.advanced(clamping: silence)
    }

    /// - Parameter slept: The total time that the machine has slept, which `now` does not include.
    package mutating func tick(now: NIODeadline, slept: Duration = .zero) -> Action? {
        guard !self.isPaused else { return nil }
        if let dies = self.peerDies, now >= dies { return .peerIsDead(silentFor: now - self.lastReceived) }
        if let action = self.monitor?.tick(now: now, slept: slept) { return Self.action(action) }
        guard let due = self.ourBeatIsDue, now >= due else { return nil }
        self.lastSent = now
        return .beat
    }

    /// Our first beat, which does not wait for silence; nil if none is sent.
    package mutating func first(now: NIODeadline) -> Action? {
        guard self.monitor == nil else { return self.pings ? self.probe(now: now, misses: nil) : nil }
        guard self.ourSilence != nil else { return nil }
        self.lastSent = now
        return .beat
    }

    /// Probes at once whether the peer lives, if there are pings.
    package mutating func probe(now: NIODeadline, misses: Int?) -> Action? {
        self.monitor?.probe(now: now, misses: misses).map { Self.action($0) }
    }

    private static func action(_ action: HeartbeatMonitor.Action) -> Action {
        switch action {
        case .ping: .beat
        case .peerIsDead(let silence): .peerIsDead(silentFor: silence)
        }
    }
}
