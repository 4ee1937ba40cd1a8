// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// The connections of one event loop in the order of their silence, the longest first. The time is passed in.
///
/// Reads do not change it: received bytes are noticed when a connection is examined, periodically, or when it is the
/// next to be closed. So the order is as exact as these examinations are frequent. All operations take constant time.
final class SilenceOrder<Element> {
    private struct Entry {
        let element: Element
        /// The time at which bytes arrived last, as far as it was noticed.
        var since: NIODeadline
        /// The number of bytes that had arrived by then.
        var bytesReceived: Int
    }

    private var entries = SlotList<Entry>()

    /// The connection that has been silent longest, the number of bytes that had arrived when it was examined, and the
    /// time of that.
    var oldest: (element: Element, slot: SlotKey, bytesReceived: Int, since: NIODeadline)? {
        guard let slot = self.entries.first, let entry = self.entries[slot] else { return nil }
        return (entry.element, slot, entry.bytesReceived, entry.since)
    }

    /// Adds a connection, which has not been silent so far.
    func insert(_ element: Element, bytesReceived: Int, now: NIODeadline) -> SlotKey {
        self.entries.append(Entry(element: element, since: now, bytesReceived: bytesReceived))
    }

    func remove(_ slot: SlotKey) { self.entries.remove(slot) }

    /// Records the state of a connection: bytes that have arrived since the last examination, or requests in flight,
    /// end its silence.
    ///
    /// - Returns: Whether it is silent.
    @discardableResult
    func check(_ slot: SlotKey, bytesReceived: Int, isBusy: Bool, now: NIODeadline) -> Bool {
        let endsSilence = self.entries.with(slot) { entry in
            guard isBusy || entry.bytesReceived != bytesReceived else { return false }
            (entry.since, entry.bytesReceived) = (now, bytesReceived)
            return true
        }
        guard endsSilence == true else { return true }
        self.entries.moveToEnd(slot)
        return false
    }
}
