// SPDX-License-Identifier: Apache-2.0
/// The bytes that the other side may still send, and those that the application has taken: on a stream, or on all
/// streams of a connection.
package struct ReceiveWindow: Hashable, Sendable {
    /// A grant is due, once anything has been taken, while less than this remains of the last one: less than the
    /// largest frame.
    package static let leastToCome = StreamFrames.maximumCost

    /// The amount that may be received beyond what was taken.
    package private(set) var window: UInt64
    /// The amount that may have arrived since the beginning.
    package private(set) var granted: UInt64
    /// The amount that has arrived since the beginning.
    package private(set) var received: UInt64 = 0
    /// The part of that which was taken.
    package private(set) var taken: UInt64 = 0
    /// The amount that had been taken at the last grant.
    private var takenAtGrant: UInt64 = 0

    /// - Parameter window: The window that was announced, the first credit.
    package init(_ window: UInt32) {
        self.window = UInt64(window)
        self.granted = UInt64(window)
    }

    /// The cost of the received items that were not taken.
    package var untaken: UInt64 { self.received.subtracting(self.taken) }

    /// Whether the other side may send no items for now, since those that it has sent were not taken.
    package var isUsed: Bool {
        self.granted.subtracting(self.received) < min(StreamFrames.minimumConnectionRoom, self.window / 2)
    }

    /// Records a received frame of this cost.
    ///
    /// - Returns: Whether it was granted. A frame that was not does not count.
    package mutating func receive(_ cost: UInt64) -> Bool {
        guard cost <= self.granted.subtracting(self.received) else { return false }
        self.received += cost
        return true
    }

    /// Records that this amount was taken.
    package mutating func take(_ cost: UInt64) { self.taken = min(self.taken.adding(cost), self.received) }

    /// Records that this amount, which counted as taken on arrival, is not taken yet.
    package mutating func putBack(_ cost: UInt64) { self.taken = self.taken.subtracting(cost) }

    /// The credit that is due now; nil if none is. Check it whenever an item was taken, and whenever a frame has
    /// arrived.
    package mutating func grant() -> UInt64? {
        guard self.taken > self.takenAtGrant else { return nil }
        let isHalfTaken = self.taken - self.takenAtGrant >= self.window - self.window / 2
        guard isHalfTaken || self.granted.subtracting(self.received) < Self.leastToCome else { return nil }
        return self.grantNow()
    }

    /// Enlarges the window beyond the announced one. It never shrinks.
    ///
    /// - Returns: The credit; nil if it grants nothing more.
    package mutating func widen(to window: UInt64) -> UInt64? {
        self.window = max(self.window, window)
        return self.grantNow()
    }

    private mutating func grantNow() -> UInt64? {
        let credit = self.taken.adding(self.window)
        guard credit > self.granted else { return nil }
        self.granted = credit
        self.takenAtGrant = self.taken
        return credit
    }
}
