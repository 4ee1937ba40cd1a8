// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Decides when a loop must rest, so that the event loop comes to its channels.
///
/// An event loop runs tasks until none is due, and only then looks at its channels: timers that are set again and
/// again, and submissions that come while others run, could keep it from that for ever.
struct TaskTurns {
    /// How long turns may run one after another without a look at channels.
    static let budget = TimeAmount.milliseconds(1)
    /// The number of turns after the last read whose time is not measured: reading the clock is not free.
    static let unmeasuredTurns = 4
    /// The loop has been idle, and has looked, when nothing ran for this time.
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

    /// - Returns: How long the loop has to rest now; nil if it may go on.
    mutating func turnEnded(began: NIODeadline, now: NIODeadline) -> TimeAmount? {
        if self.count == 0 || began - self.lastEnd >= Self.idleTime { self.time = .zero }
        self.count &+= 1
        self.time = self.time + (now - began)
        self.lastEnd = now
        guard self.time >= Self.budget else { return nil }
        defer { self.time = .zero }
        return Self.rest(after: self.time)
    }

    /// The time that the event loop needs to come to its channels after turns that took this long. On a slow machine it
    /// needs more.
    static func rest(after time: TimeAmount) -> TimeAmount {
        .nanoseconds(Self.idleTime.nanoseconds + time.nanoseconds / 16)
    }
}
