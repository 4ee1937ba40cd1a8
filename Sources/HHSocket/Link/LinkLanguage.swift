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

    /// Takes the bytes of a read.
    mutating func append(_ bytes: consuming ByteBuffer)
    /// The next unit that has come whole; nil where more bytes are needed.
    ///
    /// - Throws: ``LinkError`` when the bytes make no sense, and from then on every time.
    mutating func next() throws(LinkError) -> Incoming?
    /// The number of bytes held of an incomplete unit.
    var unfinishedBytes: Int { get }
    /// The memory held for what has come, in bytes; ``unfinishedBytes`` by default.
    var heldBytes: Int { mutating get }
    /// Frees memory that is kept for what is still to come. Does nothing by default.
    mutating func releaseRest()

    /// The length of the unit on the wire, in bytes.
    func cost(of unit: Unit) -> Int
    /// Writes the unit's beginning.
    ///
    /// - Returns: What is still to be written; nil where all has been.
    mutating func begin(_ unit: consuming Unit, into bytes: inout SendBytes) -> Outgoing<Unit>?
    /// Writes the next piece of a unit, of `limit` bytes at most.
    mutating func next(of outgoing: inout Outgoing<Unit>, limit: Int, into bytes: inout SendBytes) -> Piece

    /// Writes what is said at the end of a connection.
    mutating func close(_ reason: CloseReason, into bytes: inout SendBytes) -> Closing
}

extension LinkLanguage {
    package var heldBytes: Int { self.unfinishedBytes }
    package mutating func releaseRest() {}
}

/// A unit that leaves piece by piece.
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
    /// Nothing else may leave before the next piece.
    case more
    /// Another unit may leave before the next piece.
    case boundary
    /// A unit of a higher priority that is written whole may leave before the next piece.
    case interruptible
    /// The last one.
    case end
}

/// Why we close a connection.
package enum CloseReason: Sendable, Equatable {
    /// It is not needed any more.
    case done
    /// The peer broke the language's rules.
    case protocolViolation
    /// The peer's unit is longer than we take.
    case tooLarge
}

/// How a connection ends that we close.
package enum Closing: Sendable, Equatable {
    /// Our direction is closed once all has left.
    case shutdown
    /// The peer answers first, within this time at most; then as ``shutdown``.
    case awaitPeer(TimeAmount)
}

/// Bytes that make no sense in a language: where the next unit begins is not known.
package struct LinkError: Error, CustomStringConvertible {
    package var description: String
    package var underlying: (any Error)?
    /// The reason that the peer is given, where what is below the link can give one.
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
