// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The connections of one event loop in the order of their silence, the longest first. The time is passed in.
///
/// Reads do not change it: received bytes are noticed when a connection is examined, periodically, or when it is the
/// next to be closed. So a place is as exact as these examinations are frequent. All operations take constant time.
struct SilenceOrder<Element> {
    /// A connection's place, until it is removed.
    struct Place: Hashable, Sendable {
        fileprivate var index: Int32
    }

    private struct Entry {
        var element: Element?
        /// The time at which bytes arrived last, as far as it was noticed.
        var since: NIODeadline
        /// The number of bytes that had arrived by then.
        var bytesReceived: Int
        var previous: Int32
        /// Also used in the list of free entries.
        var next: Int32
    }

    private static var none: Int32 { -1 }

    private var entries: [Entry] = []
    private var first = Self.none
    private var last = Self.none
    private var free = Self.none

    /// The connection that has been silent longest, the number of bytes that had arrived when it was examined, and the
    /// time of that.
    var oldest: (element: Element, place: Place, bytesReceived: Int, since: NIODeadline)? {
        guard self.first != Self.none, let element = self.entries[Int(self.first)].element else { return nil }
        let entry = self.entries[Int(self.first)]
        return (element, Place(index: self.first), entry.bytesReceived, entry.since)
    }

    /// Adds a connection, which has not been silent so far.
    mutating func insert(_ element: Element, bytesReceived: Int, now: NIODeadline) -> Place {
        let entry = Entry(
            element: element,
            since: now,
            bytesReceived: bytesReceived,
            previous: Self.none,
            next: Self.none
        )
        let index: Int32
        if self.free != Self.none {
            index = self.free
            self.free = self.entries[Int(index)].next
            self.entries[Int(index)] = entry
        } else {
            index = Int32(self.entries.count)
            self.entries.append(entry)
        }
        self.append(index)
        return Place(index: index)
    }

    mutating func remove(_ place: Place) {
        guard self.entries[Int(place.index)].element != nil else { return }
        self.detach(place.index)
        self.entries[Int(place.index)].element = nil
        self.entries[Int(place.index)].next = self.free
        self.free = place.index
    }

    /// Records the state of a connection: bytes that have arrived since the last examination, or requests in flight,
    /// end its silence.
    ///
    /// - Returns: Whether it is silent.
    @discardableResult
    mutating func look(_ place: Place, bytesReceived: Int, isBusy: Bool, now: NIODeadline) -> Bool {
        let entry = self.entries[Int(place.index)]
        guard entry.element != nil, isBusy || entry.bytesReceived != bytesReceived else { return true }
        self.detach(place.index)
        self.entries[Int(place.index)].since = now
        self.entries[Int(place.index)].bytesReceived = bytesReceived
        self.append(place.index)
        return false
    }

    private mutating func append(_ index: Int32) {
        self.entries[Int(index)].previous = self.last
        self.entries[Int(index)].next = Self.none
        if self.last == Self.none { self.first = index } else { self.entries[Int(self.last)].next = index }
        self.last = index
    }

    private mutating func detach(_ index: Int32) {
        let (previous, next) = (self.entries[Int(index)].previous, self.entries[Int(index)].next)
        if previous == Self.none { self.first = next } else { self.entries[Int(previous)].next = next }
        if next == Self.none { self.last = previous } else { self.entries[Int(next)].previous = previous }
    }
}
