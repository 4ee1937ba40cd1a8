// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The language of a link: bytes to units and units to bytes, for one connection. No I/O, no clock.
///
/// Frames are one language; WebSocket messages, lines and STOMP are others.
package protocol LinkLanguage: Sendable {
    /// A unit that is sent.
    associatedtype Unit
    /// A unit that is received.
    associatedtype Incoming

    /// Appends the bytes of a read.
    mutating func append(_ bytes: consuming ByteBuffer)
    /// The next complete unit; nil if more bytes are needed.
    ///
    /// - Throws: ``LinkError`` if the bytes are invalid, and from then on every time.
    mutating func next() throws(LinkError) -> Incoming?
    /// The number of bytes held of an incomplete unit.
    var unfinishedBytes: Int { get }
    /// The memory held for the peer, in bytes, except for what has a ``Hold``. No default, so that none of it is
    /// forgotten.
    var heldBytes: Int { mutating get }
    /// Frees memory that is reserved for future bytes. No default either.
    mutating func releaseRest()
    /// Frees all received bytes, since nothing more is read. No default, so that none of them are forgotten.
    mutating func dropInput()

    /// Detaches the payload of a unit that waits for the peer from the read that it may be a slice of
    /// (`ByteBuffer.detached`).
    static func detach(_ unit: inout Unit)
    /// The bytes of a unit that may be a slice of a read.
    static func payload(of unit: Unit) -> ByteBuffer
    /// The length of the unit on the wire, in bytes, or more if the unit takes more memory while it waits.
    func cost(of unit: Unit) -> Int
    /// Writes the unit's beginning.
    ///
    /// - Returns: The part that remains to be written; nil if all has been.
    mutating func begin(_ unit: consuming Unit, into bytes: inout SendBytes) -> Outgoing<Unit>?
    /// Writes the next piece of a unit, of `limit` bytes at most.
    mutating func nextPiece(of outgoing: inout Outgoing<Unit>, limit: Int, into bytes: inout SendBytes) -> Piece

    /// Writes the unit at the end of a connection.
    mutating func close(_ reason: CloseReason, into bytes: inout SendBytes) -> Closing
}

/// A unit that is sent piece by piece.
package struct Outgoing<Unit> {
    package var unit: Unit
    /// The number of bytes of its body that were written.
    package var sent = 0

    package init(unit: Unit) {
        self.unit = unit
    }
}

extension Outgoing: Sendable where Unit: Sendable {}

/// The kind of a piece of a unit.
package enum Piece: Sendable {
    /// No other unit may be sent before the next piece.
    case more
    /// Another unit may be sent before the next piece.
    case boundary
    /// A complete unit of a higher priority may be sent before the next piece.
    case interruptible
    /// The last one.
    case end
}

/// The reason for closing a connection.
package enum CloseReason: Sendable, Equatable {
    /// The connection is no longer needed.
    case done
    /// The peer broke the language's rules.
    case protocolViolation
    /// The peer's unit exceeds our limit.
    case tooLarge
}

/// The way in which we close a connection.
package enum Closing: Sendable, Equatable {
    /// Our direction is closed once everything has been sent.
    case shutdown
    /// The peer answers first, within this time at most; then as ``shutdown``.
    case awaitPeer(TimeAmount)
}

/// Invalid bytes in a language: the beginning of the next unit is unknown.
package struct LinkError: Error, CustomStringConvertible {
    package var description: String
    package var underlying: (any Error)?
    /// The reason that is sent to the peer, if the link's transport can send one.
    package var reason: CloseReason

    package init(
        _ description: String,
        underlying: (any Error)? = nil,
        reason: CloseReason = .protocolViolation
    ) {
        self.description = description
        self.underlying = underlying
        self.reason = reason
    }
}
