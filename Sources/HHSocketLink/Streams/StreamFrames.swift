// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The frames of streams, and their cost.
package enum StreamFrames {
    /// The largest part of a payload that one frame carries once streams are agreed on, in bytes; longer payloads are
    /// divided.
    package static let maximumPieceLength = 65_536
    /// The cost of an item's frame in addition to its payload, in every format.
    package static let overhead: UInt64 = 16
    /// The largest cost of a frame of a sender that divides payloads.
    package static let maximumCost = UInt64(maximumPieceLength) + overhead
    /// The smallest cost of a frame that was limited by credit: one byte, and ``overhead``.
    package static let minimumCutCost = overhead + 1
    /// A sender waits while less of the connection's window is free, or half of that window if that is less.
    package static let minimumConnectionRoom: UInt64 = 8_192
    /// The length of a credit's payload, in bytes.
    package static let creditLength = 8

    /// The cost of a frame of an item with a payload of this length.
    package static func cost(_ payloadLength: Int) -> UInt64 { UInt64(payloadLength) + self.overhead }

    /// The cost of a payload that is divided only because of its length.
    package static func wholeCost(_ payloadLength: Int) -> UInt64 {
        let frames = max(1, (payloadLength + Self.maximumPieceLength - 1) / Self.maximumPieceLength)
        return UInt64(payloadLength) + UInt64(frames) * Self.overhead
    }

    /// A credit: how much the other side may have sent since the beginning.
    ///
    /// - Parameter serial: The stream's, or ``FrameSerial/connectionCredit``.
    package static func credit(serial: UInt32, _ credit: UInt64) -> Frame {
        Frame(type: FrameType.credit, serial: serial, payload: ByteBuffer(integer: credit))
    }

    /// The end of a client's items.
    package static func end(serial: UInt32) -> Frame { Frame(type: FrameType.end, serial: serial) }

    /// The number in the payload of a credit; nil if it has not its length.
    package static func credit(in payload: ByteBuffer) -> UInt64? {
        guard payload.readableBytes == Self.creditLength else { return nil }
        return payload.getInteger(at: payload.readerIndex)
    }
}

extension UInt64 {
    /// The sum, or the largest number if that is less.
    func adding(_ other: UInt64) -> UInt64 {
        let (sum, overflow) = self.addingReportingOverflow(other)
        return overflow ? .max : sum
    }

    /// The difference, or zero if that is more.
    func subtracting(_ other: UInt64) -> UInt64 { self > other ? self - other : 0 }
}
