// SPDX-License-Identifier: Apache-2.0
import HHSocket
public import NIOCore

/// Streams, on connections whose hello has agreed on them (``MockPeer/acceptHello(features:streams:)``).
///
/// ```swift
/// server.on(1010, .glued(.item("1"), .item("2"), .status(.ok)))       // items, and the end
/// server.onItem(of: 1012, .respond { .item($0.body) })                // an echo
/// server.onItemsEnded(of: 1011, .answer("sum").withMetadata(["count": "3"]))
/// ```
///
/// The server takes items as they arrive, and grants credit for more; a script has to do so only to grant wrong credit.
/// Items and final answers are sent regardless of the client's credit.
extension MockReaction where Wire == FrameWire {
    /// A place at which ``dieInMidStream(afterItems:_:)`` ends the connection.
    package enum MidStream: Sendable, Hashable, CaseIterable {
        /// After a whole item.
        case betweenItems
        /// After the first piece of another item.
        case betweenPieces
        /// Within a frame of another item.
        case withinPiece
    }

    /// A mistake of ``wrongCredit(_:)``.
    package enum WrongCredit: Sendable, Hashable, CaseIterable {
        /// One byte is granted, and nothing after it.
        case tooLittle
        /// Less is granted than before.
        case smaller
        /// The credit has 7 bytes instead of 8.
        case malformed
        /// The credit is for a stream that is not open.
        case unknownStream
    }

    // MARK: What is sent

    /// Sends an item of the request's stream; of another with ``withSerial(_:)``.
    public static func item(_ body: ByteBuffer) -> Self { Self(.item(body)) }

    /// Sends an item with this text's UTF-8 as payload.
    public static func item(_ body: String) -> Self { .item(ByteBuffer(string: body)) }

    /// Grants credit on the request's stream: how much the client may have sent since the stream's beginning, in bytes,
    /// with 16 for each frame. It may be too little, or less than before.
    package static func credit(_ credit: UInt64) -> Self { Self(.credit(ByteBuffer(integer: credit))) }

    /// Grants credit on the connection: how much the client may have sent on all streams together.
    package static func connectionCredit(_ credit: UInt64) -> Self {
        .credit(credit).withSerial(FrameSerial.connectionCredit)
    }

    // MARK: Wrong behaviour

    /// Takes nothing more of the request's stream, and does not react to its items: the client receives no more credit,
    /// on the stream or for its share of the connection's window. Frames that a test sends explicitly are still sent.
    public static var stall: Self { Self(.stall) }

    /// Sends one item, in one frame, that is larger than the client's window of a stream.
    ///
    /// The window of the client's connection must be larger, or it is ``overrunConnection``.
    package static var overrunStream: Self { Self(.excess(ofConnection: false)) }

    /// Sends one item, in one frame, that is larger than the client's window of the connection. That must be smaller
    /// than the largest payload that the client accepts.
    package static var overrunConnection: Self { Self(.excess(ofConnection: true)) }

    /// Sends items, and closes the connection without an answer.
    ///
    /// - Parameters:
    ///   - count: The number of complete items that are sent before, with the texts `1`, `2`, …
    ///   - point: Where the stream breaks off; by default after a complete item.
    package static func dieInMidStream(afterItems count: Int, _ point: MidStream = .betweenItems) -> Self {
        let items = Self.glued((0..<max(0, count)).map { .item("\($0 + 1)") })
        return switch point {
        case .betweenItems: items.then(.close)
        case .betweenPieces: items.then(.item("half").unfinished()).then(.close)
        case .withinPiece: items.then(.item(ByteBuffer(repeating: 0, count: 100)).cut(after: 64)).then(.close)
        }
    }

    /// Sends a credit of the request's stream that no server should send.
    package static func wrongCredit(_ mistake: WrongCredit) -> Self {
        switch mistake {
        case .tooLittle: Self(.stall).then(Self(.creditBeyond(1)))
        case .smaller: Self(.creditBeyond(-1))
        case .malformed: Self(.credit(ByteBuffer(repeating: 0xFF, count: StreamFrames.creditLength - 1)))
        case .unknownStream: .credit(.max).withSerial(.max)
        }
    }

    // MARK: Adverbs

    /// Sends the payload of each frame in pieces, as a server does with more than 65,536 bytes.
    ///
    /// - Parameter length: The greatest number of bytes of a piece, at least 1.
    package func inPieces(of length: Int) -> Self { self.changingOutput { $0.pieceLength = max(1, length) } }

    /// Sends each frame as a piece that announces further pieces, which are not sent: the payload stays unfinished.
    package func unfinished() -> Self { self.changingOutput { $0.isUnfinished = true } }
}

extension FrameWire.Output {
    /// Returns the frames that carry the payload of one: several where it is sent in pieces.
    func pieces(of frame: Frame) -> [Frame] {
        guard self.pieceLength != nil || self.isUnfinished else { return [frame] }
        var (rest, frames) = (frame.payload, [Frame]())
        repeat {
            var piece = frame
            let length = min(rest.readableBytes, self.pieceLength ?? .max)
            piece.payload = rest.readSlice(length: length) ?? ByteBuffer()
            if rest.readableBytes > 0 || self.isUnfinished { piece.type |= FrameType.continuesFlag }
            frames.append(piece)
        } while rest.readableBytes > 0
        return frames
    }
}
