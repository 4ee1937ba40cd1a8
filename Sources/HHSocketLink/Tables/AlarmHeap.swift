// SPDX-License-Identifier: Apache-2.0
/// A min-heap of alarms: times, each with the key of its owner. The current time is passed in. A time may be any amount
/// that an owner waits for, such as credit.
///
/// Inserting an alarm that is later than all others takes constant time. Removal is lazy: an alarm that is no longer
/// wanted stays until its time comes or the heap is swept, so that finishing a call costs nothing here.
///
/// Its state is not private, so that the code is specialised in the modules that use it.
@usableFromInline
package struct AlarmHeap<Time: Comparable & Sendable, Key: Sendable>: Sendable {
    @usableFromInline
    package struct Alarm: Sendable {
        @usableFromInline package let time: Time
        @usableFromInline package let key: Key

        @inlinable
        init(_ time: Time, _ key: Key) {
            self.time = time
            self.key = key
        }
    }

    @usableFromInline var alarms: [Alarm] = []

    @inlinable
    package init() {}

    /// The number of alarms, unwanted ones included.
    @inlinable package var count: Int { self.alarms.count }
    /// The earliest alarm, which may be unwanted.
    @inlinable package var first: Alarm? { self.alarms.first }

    @inlinable
    package mutating func insert(_ time: Time, _ key: Key) {
        let alarm = Alarm(time, key)
        self.alarms.append(alarm)
        var index = self.alarms.count - 1
        // If timeouts are equal, each alarm is the latest and is already in its place.
        guard index > 0, alarm.time < self.alarms[(index - 1) / 2].time else { return }
        while index > 0 {
            let parent = (index - 1) / 2
            guard alarm.time < self.alarms[parent].time else { break }
            self.alarms[index] = self.alarms[parent]
            index = parent
        }
        self.alarms[index] = alarm
    }

    /// Removes and returns the earliest alarm if its time has come.
    @inlinable
    package mutating func popDue(now: Time) -> Alarm? {
        guard let first = self.alarms.first, first.time <= now else { return nil }
        self.removeFirst()
        return first
    }

    /// Removes unwanted alarms from the front, so that ``first`` is wanted.
    @inlinable
    package mutating func dropFirst(unless isWanted: (Alarm) -> Bool) {
        while let first = self.alarms.first, !isWanted(first) { self.removeFirst() }
    }

    @inlinable
    mutating func removeFirst() {
        guard let last = self.alarms.popLast(), !self.alarms.isEmpty else { return }
        self.sink(last, from: 0)
    }

    /// Whether it is time to ``sweep(_:)``: so late that sweeping costs a constant for each alarm, and so early that
    /// the memory is in proportion to the number of owners.
    ///
    /// - Parameter owners: The number of owners left, each with a few alarms at most.
    @inlinable
    package func isCrowded(owners: Int) -> Bool { self.alarms.count > 4 * owners + 64 }

    /// Keeps only the alarms that are still wanted.
    @inlinable
    package mutating func sweep(_ isWanted: (Alarm) -> Bool) {
        self.alarms.removeAll { !isWanted($0) }
        for index in stride(from: self.alarms.count / 2 - 1, through: 0, by: -1) {
            self.sink(self.alarms[index], from: index)
        }
    }

    /// Puts `alarm` at `start` or below, where it belongs.
    @inlinable
    mutating func sink(_ alarm: Alarm, from start: Int) {
        let count = self.alarms.count
        var index = start
        while true {
            var child = 2 * index + 1
            guard child < count else { break }
            if child + 1 < count, self.alarms[child + 1].time < self.alarms[child].time { child += 1 }
            guard self.alarms[child].time < alarm.time else { break }
            self.alarms[index] = self.alarms[child]
            index = child
        }
        self.alarms[index] = alarm
    }
}
