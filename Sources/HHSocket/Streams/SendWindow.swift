// SPDX-License-Identifier: Apache-2.0
/// The credit for what may still be sent: on a stream, or on a connection in all its streams.
///
/// Credit is absolute: it counts from the beginning, so that one which comes twice, or late, does no harm.
package struct SendWindow: Hashable, Sendable {
    /// How much may have been sent since the beginning.
    package private(set) var granted: UInt64
    /// How much has been sent since the beginning.
    package private(set) var sent: UInt64 = 0
    /// The largest difference so far between a grant and what had been sent when it came.
    package private(set) var window: UInt64

    /// - Parameter window: The window that the other side announced, its first credit.
    package init(_ window: UInt32) {
        self.granted = UInt64(window)
        self.window = UInt64(window)
    }

    /// How much may be sent now.
    package var free: UInt64 { self.granted.subtracting(self.sent) }

    /// Whether less than half of the window is free.
    package var isMostlyUsed: Bool { self.free < self.window - self.window / 2 }

    /// Takes a credit.
    ///
    /// - Returns: Whether it moves anything: one that is no larger than before is ignored.
    package mutating func grant(_ credit: UInt64) -> Bool {
        guard credit > self.granted else { return false }
        self.granted = credit
        self.window = max(self.window, self.free)
        return true
    }

    /// A frame of this cost leaves.
    package mutating func send(_ cost: UInt64) { self.sent = self.sent.adding(cost) }
}

/// The decision on the next frame of a stream's item.
package enum Cut: Hashable, Sendable {
    /// It leaves with this number of bytes: as many as a frame carries, or as the credit reaches for.
    case send(length: Int)
    /// Too little of the stream's window is free.
    case waitForStream
    /// The stream's credit reaches for the frame and the connection's does not; only a part of it may not leave, since
    /// too little of the stream's window is free.
    case waitForWhole
    /// Too little of the connection's window is free.
    case waitForConnection

    /// Decides on the next frame of an item.
    ///
    /// - Parameters:
    ///   - rest: The number of bytes of the item that have not left.
    ///   - stream: What may be sent on the stream.
    ///   - connection: What may be sent on the connection.
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
