// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Decides when a loop must pause, so that the event loop polls its channels.
///
/// An event loop runs tasks until none is due, and only then polls its channels: timers that are set again and again,
/// and submissions that arrive while others run, could prevent that for ever.
struct TaskTurns {
    /// The time for which turns may run one after another without polling channels.
    static let budget = TimeAmount.milliseconds(1)
    /// The number of turns after the last read whose time is not measured: reading the clock is not free.
    static let unmeasuredTurns = 4
    /// The time without a task after which the loop counts as idle, and as having polled.
    static let idleTime = TimeAmount.microseconds(50)

    /// The number of turns since the last read of a channel.
    private(set) var count = 0
    private var time = TimeAmount.zero
    private var lastEnd = NIODeadline.distantPast

    /// Whether the time of the next turn matters.
    var measures: Bool { self.count >= Self.unmeasuredTurns }

    /// A channel was read.
    @inline(__always)
    mutating func channelWasRead() { self.count = 0 }

    mutating func turnEnded() { self.count &+= 1 }

    /// - Returns: The time for which the loop must pause now; nil if it may continue.
    mutating func turnEnded(began: NIODeadline, now: NIODeadline) -> TimeAmount? {
        if self.count == 0 || began - self.lastEnd >= Self.idleTime { self.time = .zero }
        self.count &+= 1
        self.time = self.time + (now - began)
        self.lastEnd = now
        guard self.time >= Self.budget else { return nil }
        defer { self.time = .zero }
        return Self.rest(after: self.time)
    }

    /// The time that the event loop needs to reach its channels after turns that took `time`. A slow machine needs
    /// more.
    static func rest(after time: TimeAmount) -> TimeAmount {
        .nanoseconds(Self.idleTime.nanoseconds + time.nanoseconds / 16)
    }
}
