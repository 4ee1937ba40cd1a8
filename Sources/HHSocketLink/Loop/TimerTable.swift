// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// A table of actions and their times. The current time is passed in.
///
/// The cost of setting and cancelling a timer does not depend on their number: the alarm of a cancelled timer stays in
/// the heap until its time comes, or until most alarms are of such timers. An event loop, by contrast, searches all of
/// its timers for one that is cancelled.
package struct TimerTable<Action>: ~Copyable {
    /// Names a timer.
    package struct ID: Hashable, Sendable {
        fileprivate var number: UInt64
        fileprivate var key: SlotKey
    }

    // Not private: the compiler (6.3) fails where another file destroys a noncopyable table of a private type.
    struct Timer {
        let number: UInt64
        let action: Action
    }

    struct Time: Comparable, Sendable {
        var deadline: NIODeadline
        var number: UInt64

        /// Timers of the same time are ordered as they were set.
        static func < (one: Time, other: Time) -> Bool { (one.deadline, one.number) < (other.deadline, other.number) }
    }

    /// The number of slots that are kept even if no timer is set.
    private static var slotsKept: Int { 64 }

    private var alarms = AlarmHeap<Time, SlotKey>()
    private var timers = SlotTable<Timer>()
    private var lastNumber: UInt64

    /// - Parameter number: The number before that of the first timer, so that those of several tables differ; 0 by
    ///   default.
    package init(numberedFrom number: UInt64 = 0) {
        self.lastNumber = number
    }

    /// The number of timers that are set.
    package var count: Int { self.timers.count }
    /// The number of alarms, including those of timers that were cancelled.
    package var occupiedSlots: Int { self.alarms.count }

    package mutating func set(_ deadline: NIODeadline, _ action: Action) -> ID {
        self.lastNumber += 1
        let key = self.timers.insert(Timer(number: self.lastNumber, action: action))
        self.alarms.insert(Time(deadline: deadline, number: self.lastNumber), key)
        return ID(number: self.lastNumber, key: key)
    }

    /// Cancels a timer. Has no effect on one that has fired.
    package mutating func remove(_ id: ID) {
        guard self.timers[id.key]?.number == id.number else { return }
        self.timers.remove(id.key)
        if self.timers.count == 0 {
            self.alarms = AlarmHeap()
            _ = self.timers.releaseMemory(keeping: Self.slotsKept)
        } else if self.alarms.isCrowded(owners: self.timers.count) {
            Self.sweep(&self.alarms, self.timers)
        }
    }

    // The timers are borrowed, while the alarms are mutated.
    private static func sweep(_ alarms: inout AlarmHeap<Time, SlotKey>, _ timers: borrowing SlotTable<Timer>) {
        alarms.sweep { timers.contains($0.key) }
    }

    /// Cancels all timers.
    mutating func removeAll() { self = TimerTable(numberedFrom: self.lastNumber) }

    /// The latest time at which the next one is due; that timer may have been cancelled.
    package var nextDeadline: NIODeadline? { self.timers.count == 0 ? nil : self.alarms.first?.time.deadline }

    /// Removes and returns a due action.
    package mutating func popDue(now: NIODeadline) -> Action? {
        while let alarm = self.alarms.popDue(now: Time(deadline: now, number: .max)) {
            if let timer = self.timers.remove(alarm.key) { return timer.action }
        }
        return nil
    }
}
