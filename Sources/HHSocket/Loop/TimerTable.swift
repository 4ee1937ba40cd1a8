// SPDX-License-Identifier: Apache-2.0
import HeapModule
import NIOCore

/// A table of actions and their times. The current time is passed in.
///
/// The cost of setting and cancelling a timer does not depend on their number: a cancelled timer stays in the heap, as
/// an invalid number, until its time comes or such numbers are half of all. An event loop, by contrast, searches all of
/// its timers for one that is cancelled.
package struct TimerTable<Action> {
    /// Names a timer.
    package struct ID: Hashable, Sendable {
        fileprivate var number: UInt64
    }

    private struct Alarm: Comparable {
        var deadline: NIODeadline
        var id: UInt64

        /// Timers of the same time are ordered as they were set.
        static func < (one: Alarm, other: Alarm) -> Bool { (one.deadline, one.id) < (other.deadline, other.id) }
    }

    private var alarms = Heap<Alarm>()
    private var actions: [UInt64: Action] = [:]
    private var lastID: UInt64

    /// - Parameter number: The number before that of the first timer, so that those of several tables differ; 0 by
    ///   default.
    package init(numberedFrom number: UInt64 = 0) {
        self.lastID = number
    }

    /// The number of timers that are set.
    package var count: Int { self.actions.count }
    /// The number of occupied places: by timers that are set, and by some that were removed.
    package var occupiedPlaces: Int { self.alarms.count }

    package mutating func set(_ deadline: NIODeadline, _ action: Action) -> ID {
        self.lastID += 1
        self.actions[self.lastID] = action
        self.alarms.insert(Alarm(deadline: deadline, id: self.lastID))
        return ID(number: self.lastID)
    }

    /// Cancels a timer. Has no effect on one that has fired.
    package mutating func remove(_ id: ID) {
        guard self.actions.removeValue(forKey: id.number) != nil else { return }
        if self.actions.isEmpty {
            // Including the memory, since there may have been very many.
            self.alarms = Heap()
            self.actions = [:]
        } else if self.alarms.count > 64, self.alarms.count > 2 * self.actions.count {
            self.alarms = Heap(self.alarms.unordered.filter { self.actions[$0.id] != nil })
        }
    }

    /// Cancels all timers.
    mutating func removeAll() { self = TimerTable(numberedFrom: self.lastID) }

    /// The latest time at which the next one is due; that timer may have been cancelled.
    package var nextDeadline: NIODeadline? { self.actions.isEmpty ? nil : self.alarms.min?.deadline }

    /// Removes and returns a due action.
    package mutating func popDue(now: NIODeadline) -> Action? {
        while let next = self.alarms.min, next.deadline <= now {
            self.alarms.removeMin()
            if let action = self.actions.removeValue(forKey: next.id) { return action }
        }
        return nil
    }
}
