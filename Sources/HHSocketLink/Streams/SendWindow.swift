// SPDX-License-Identifier: Apache-2.0
/// The credit for sending: on a stream, or on all streams of a connection.
///
/// Credit is absolute: it counts from the beginning, so a credit that is repeated, or late, does no harm.
package struct SendWindow: Hashable, Sendable {
    /// The amount that may have been sent since the beginning.
    package private(set) var granted: UInt64
    /// The amount that has been sent since the beginning.
    package private(set) var sent: UInt64 = 0
    /// The largest difference so far between a grant and the amount that had been sent when it arrived.
    package private(set) var window: UInt64

    /// - Parameter window: The window that the other side announced, its first credit.
    package init(_ window: UInt32) {
        self.granted = UInt64(window)
        self.window = UInt64(window)
    }

    /// The amount that may be sent now.
    package var free: UInt64 { self.granted.subtracting(self.sent) }

    /// Whether less than half of the window is free.
    package var isMostlyUsed: Bool { self.free < self.window - self.window / 2 }

    /// Records a credit.
    ///
    /// - Returns: Whether it has an effect: one that is no larger than before is ignored.
    package mutating func grant(_ credit: UInt64) -> Bool {
        guard credit > self.granted else { return false }
        self.granted = credit
        self.window = max(self.window, self.free)
        return true
    }

    /// Records that a frame of this cost is sent.
    package mutating func send(_ cost: UInt64) { self.sent = self.sent.adding(cost) }
}

/// The decision on the next frame of a stream's item.
package enum Cut: Hashable, Sendable {
    /// It is sent with this number of bytes: the most that a frame carries, or that the credit allows.
    case send(length: Int)
    /// Too little of the stream's window is free.
    case waitForStream
    /// The stream's credit suffices for the frame, but the connection's does not; the frame must not be divided, since
    /// too little of the stream's window is free.
    case waitForWhole
    /// Too little of the connection's window is free.
    case waitForConnection

    /// Decides on the next frame of an item.
    ///
    /// - Parameters:
    ///   - rest: The number of bytes of the item that were not sent.
    ///   - stream: The credit of the stream.
    ///   - connection: The credit of the connection.
    package static func next(rest: Int, stream: SendWindow, connection: SendWindow) -> Cut {
        let length = min(rest, StreamFrames.maximumPieceLength)
        let cost = StreamFrames.cost(length)
        if cost <= stream.free, cost <= connection.free { return .send(length: length) }
        let isCutToStream = !stream.isMostlyUsed && stream.free >= min(cost, StreamFrames.minimumCutCost)
        guard isCutToStream else { return cost <= stream.free ? .waitForWhole : .waitForStream }
        let hasRoom = connection.free >= StreamFrames.minimumConnectionRoom || !connection.isMostlyUsed
        guard hasRoom, connection.free >= StreamFrames.minimumCutCost else { return .waitForConnection }
        let credit = min(stream.free, connection.free)
        guard credit >= StreamFrames.minimumCutCost else { return .waitForStream }
        return .send(length: Int(credit - StreamFrames.overhead))
    }
}
