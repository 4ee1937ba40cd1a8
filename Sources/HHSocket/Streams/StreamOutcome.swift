// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Names a stream on its connection; invalid once nothing of it is left there.
package struct StreamID: Hashable, Sendable {
    var key: SlotKey
}

/// A mistake of the other side that ends a stream.
package enum StreamViolation: Hashable, Sendable {
    /// More was sent on the stream than was granted.
    case beyondWindow
    /// An item after the end of the items.
    case itemAfterEnd
    /// The end of the items, within one.
    case endWithinItem
    /// An item from a side that sends none.
    case unexpectedItem
    /// An opening with a body, of a stream whose items the client sends.
    case bodyInOpening
    /// An item with metadata.
    case metadataOnItem
    /// An idempotency key on a stream.
    case keyOnStream
    /// The pieces of a payload differ in type, flags or status.
    case differentPieces
    /// A flag that hello did not agree on.
    case flagNotAgreed
    /// A request with the serial of a stream that is open.
    case serialInUse
}

/// How a stream ended.
package enum StreamOutcome: Hashable, Sendable {
    /// At the client: the final answer has come. At the server: it has left.
    case answered(Status)
    /// The client does not want it any more.
    case cancelled
    /// The connection was lost.
    case connectionLost
    /// The other side did what it must not.
    case violated(StreamViolation)
    /// A frame of it had a wrong checksum.
    case damaged
    /// A payload of it was longer than is allowed.
    case tooLong
    /// More would wait on the connection than is allowed.
    case tooMuchHeld
    /// Nothing moved for too long.
    case idle
    /// At the server: the patience of a drain was over.
    case drained
    /// At the server: the client closed its sending half, and its items had not ended.
    case inputClosed
    /// At the server: it was ended by this status.
    case failed(Status)

    /// The status that a server answers with; nil where it answers nothing, or the answer was the application's.
    package var status: Status? {
        switch self {
        case .answered, .cancelled, .connectionLost, .inputClosed: nil
        case .violated: .illegalFormat
        case .damaged: .lostPacket
        case .tooLong: .illegalLength
        case .tooMuchHeld: .overloaded
        case .idle: .deadlineExceeded
        case .drained: .cancelledByServer
        case .failed(let status): status
        }
    }
}

/// The end of a stream.
package struct StreamEnd: Sendable {
    package var outcome: StreamOutcome
    /// At the client: the final answer, with the flags of the whole in its type.
    package var answer: Frame?
    /// Whether a frame of an item has left or come. If not, the call may be sent again where another call may.
    package var hasMoved: Bool
    /// At the client: whether a byte of the opening may have left.
    package var hasLeft: Bool
}

/// The report that is due once the application gets an item. Those of several items may be added.
package struct ItemReceipt: Hashable, Sendable {
    /// The cost of the item's frames, which count on its stream and as held.
    package fileprivate(set) var cost: UInt64 = 0
    /// The cost of its last frame, which counts on the connection.
    package fileprivate(set) var lastCost: UInt64 = 0

    package init() {}

    init(cost: UInt64, lastCost: UInt64) {
        self.cost = cost
        self.lastCost = lastCost
    }

    package static func += (sum: inout ItemReceipt, other: ItemReceipt) {
        sum.cost = sum.cost.adding(other.cost)
        sum.lastCost = sum.lastCost.adding(other.lastCost)
    }

    /// Removes another, and returns what of it was there.
    mutating func remove(_ other: ItemReceipt) -> ItemReceipt {
        let removed = ItemReceipt(cost: min(self.cost, other.cost), lastCost: min(self.lastCost, other.lastCost))
        self.cost -= removed.cost
        self.lastCost -= removed.lastCost
        return removed
    }
}

/// An item that has come whole.
package struct StreamItem: Sendable {
    /// The body, as it came.
    package var payload: ByteBuffer
    package var isCompressed: Bool
    package var receipt: ItemReceipt
}

/// How a payload that came in pieces, and belongs to no stream, failed.
package enum PayloadFailure: Hashable, Sendable {
    case damaged, tooLong, tooMuchHeld, differentPieces

    /// The status that a server answers with.
    package var status: Status {
        switch self {
        case .damaged: .lostPacket
        case .tooLong: .illegalLength
        case .tooMuchHeld: .overloaded
        case .differentPieces: .illegalFormat
        }
    }
}

/// Why a connection cannot go on.
package enum StreamFault: Hashable, Sendable {
    /// More was sent than the connection's window.
    case beyondWindow
    /// Too many payloads were begun.
    case tooManyUnfinished
}

/// A step that the shell performs.
package enum StreamAction: Sendable {
    /// The application gets this item; ``ItemReceipt`` is reported then.
    case item(StreamID, StreamItem)
    /// At the server: no more items come.
    case itemsEnded(StreamID)
    /// A sender that was told to wait may go on.
    case goOn(StreamID)
    /// The stream is over. Told once for each that was opened; nothing but ``ItemReceipt``s concerns it after that.
    indirect case ended(StreamID, StreamEnd)
    /// A payload that came in pieces is whole: a request, an answer, a push.
    indirect case whole(Frame)
    /// A payload that came in pieces failed. A server has answered it.
    case failed(type: UInt32, serial: UInt32, PayloadFailure)
    /// The connection is to be closed.
    case close(StreamFault)
}
