// SPDX-License-Identifier: Apache-2.0
/// The bytes that the other side may still send, and those that the application has taken: on a stream, or on a
/// connection in all its streams.
package struct ReceiveWindow: Hashable, Sendable {
    /// A grant is due, once anything has been taken, while less than this is still to come of the last one: less than
    /// the largest frame.
    package static let leastToCome = StreamFrames.maximumCost

    /// How much is ready to be received beyond what was taken.
    package private(set) var window: UInt64
    /// How much may have come since the beginning.
    package private(set) var granted: UInt64
    /// How much has come since the beginning.
    package private(set) var received: UInt64 = 0
    /// How much of that has been taken.
    package private(set) var taken: UInt64 = 0
    /// How much had been taken when the last grant was made.
    private var takenAtGrant: UInt64 = 0

    /// - Parameter window: The window that was announced, the first credit.
    package init(_ window: UInt32) {
        self.window = UInt64(window)
        self.granted = UInt64(window)
    }

    /// The cost of what has come and was not taken.
    package var untaken: UInt64 { self.received.subtracting(self.taken) }

    /// A frame of this cost has come.
    ///
    /// - Returns: Whether it was granted. One that was not does not count.
    package mutating func receive(_ cost: UInt64) -> Bool {
        guard cost <= self.granted.subtracting(self.received) else { return false }
        self.received += cost
        return true
    }

    /// This much of what has come is taken.
    package mutating func take(_ cost: UInt64) { self.taken = min(self.taken.adding(cost), self.received) }

    /// This much, which was taken when it came, counts as not taken again.
    package mutating func putBack(_ cost: UInt64) { self.taken = self.taken.subtracting(cost) }

    /// The credit that is due now; nil if none is. To be asked whenever something was taken, and whenever a frame has
    /// come.
    package mutating func grant() -> UInt64? {
        guard self.taken > self.takenAtGrant else { return nil }
        let isHalfTaken = self.taken - self.takenAtGrant >= self.window - self.window / 2
        guard isHalfTaken || self.granted.subtracting(self.received) < Self.leastToCome else { return nil }
        return self.grantNow()
    }

    /// Makes the window larger than what was announced. It never shrinks.
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
