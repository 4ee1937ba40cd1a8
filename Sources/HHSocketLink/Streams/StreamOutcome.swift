// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Identifies a stream on its connection; invalid once the stream has been removed there.
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

/// The reason why a stream ended.
package enum StreamOutcome: Hashable, Sendable {
    /// At the client: the final answer has arrived. At the server: it was sent.
    case answered(Status)
    /// The client cancelled it.
    case cancelled
    /// The connection was lost.
    case connectionLost
    /// The other side violated the rules.
    case violated(StreamViolation)
    /// One of its frames had a wrong checksum.
    case damaged
    /// A payload of it was longer than is allowed.
    case tooLong
    /// More would wait on the connection than is allowed.
    case tooMuchHeld
    /// Nothing moved for too long.
    case idle
    /// At the server: the grace period of a drain was over.
    case drained
    /// At the server: the client closed its sending half before its items had ended.
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
    /// Whether a frame of an item was sent or received. If not, the stream may be opened again like a call.
    package var hasMoved: Bool
    /// At the client: whether a byte of the opening may have been sent.
    package var hasLeft: Bool
}

/// The report that is due once the application takes an item. Reports of several items can be added.
package struct ItemReceipt: Hashable, Sendable {
    /// The cost of the item's frames, which count on its stream and as held.
    package fileprivate(set) var cost: UInt64 = 0
    /// The cost of its last frame, which counts on the connection.
    package fileprivate(set) var lastCost: UInt64 = 0
    /// The memory that it costs until it is taken, in bytes.
    fileprivate(set) var memory: UInt64 = 0

    /// The memory that an item costs in addition to its bytes: its place in a growing queue.
    static let overhead: UInt64 = 128

    package init() {}

    init(cost: UInt64, lastCost: UInt64, _ payload: ByteBuffer) {
        self.cost = cost
        self.lastCost = lastCost
        self.memory = UInt64(payload.detachedCapacity) + Self.overhead
    }

    private init(cost: UInt64, lastCost: UInt64, memory: UInt64) {
        self.cost = cost
        self.lastCost = lastCost
        self.memory = memory
    }

    package static func += (sum: inout ItemReceipt, other: ItemReceipt) {
        sum.cost = sum.cost.adding(other.cost)
        sum.lastCost = sum.lastCost.adding(other.lastCost)
        sum.memory = sum.memory.adding(other.memory)
    }

    /// Subtracts another receipt, and returns the part of it that was contained.
    mutating func remove(_ other: ItemReceipt) -> ItemReceipt {
        let removed = ItemReceipt(
            cost: min(self.cost, other.cost),
            lastCost: min(self.lastCost, other.lastCost),
            memory: min(self.memory, other.memory)
        )
        self.cost -= removed.cost
        self.lastCost -= removed.lastCost
        self.memory -= removed.memory
        return removed
    }
}

/// A complete received item.
package struct StreamItem: Sendable {
    /// The body, as it was sent. It may be a slice of a read: owning each small one would cost as much as its call.
    package var payload: ByteBuffer
    package var isCompressed: Bool
    package var receipt: ItemReceipt
}

/// The failure of a payload in pieces that belongs to no stream.
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

/// The reason why a connection cannot continue.
package enum StreamFault: Hashable, Sendable {
    /// More was sent than the connection's window.
    case beyondWindow
    /// There are too many incomplete payloads.
    case tooManyUnfinished
}

/// A step that the shell performs.
package enum StreamAction: Sendable {
    /// The application gets this item; ``ItemReceipt`` is reported then.
    case item(StreamID, StreamItem)
    /// At the server: the client has ended its items.
    case itemsEnded(StreamID)
    /// A sender that had to wait may continue.
    case unblock(StreamID)
    /// The stream has ended. Reported once for each opened stream; only ``ItemReceipt``s concern it after that.
    indirect case ended(StreamID, StreamEnd)
    /// A payload in pieces is complete: a request, an answer, a push.
    indirect case whole(Frame)
    /// A payload in pieces failed. A server has answered it.
    case failed(type: UInt32, serial: UInt32, PayloadFailure)
    /// The connection must be closed.
    case close(StreamFault)
}
