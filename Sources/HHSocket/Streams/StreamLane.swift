import DequeModule
import NIOCore

/// A payload that waits to be cut into frames.
package struct LanePayload: Sendable {
    /// The part that a payload has in its stream.
    package enum Kind: Hashable, Sendable {
        /// It belongs to no stream, or opens one: it costs nothing.
        case free
        /// An item, which needs credit.
        case item
        /// The end of a client's items.
        case end
        /// The server's final answer.
        case last
    }

    /// The type of its frames, with the flags of the whole.
    package var type: UInt32
    package var status: Status
    package var kind: Kind
    /// The bytes that have not left.
    package var bytes: ByteBuffer
    /// Whether a piece has left.
    package var hasBegun = false

    package init(type: UInt32, status: Status = .ok, kind: Kind, bytes: ByteBuffer = ByteBuffer()) {
        self.type = type
        self.status = status
        self.kind = kind
        self.bytes = bytes
    }

    /// The cost of the rest of it, if it is an item.
    var cost: UInt64 { self.kind == .item ? StreamFrames.wholeCost(self.bytes.readableBytes) : 0 }
}

/// The payloads that one serial has to send. They leave in their order, and take turns with those of other lanes.
struct StreamLane: Sendable {
    /// Where a lane waits.
    enum Place: Hashable, Sendable {
        /// It has nothing to send.
        case none
        /// In line, with what costs nothing.
        case free
        /// In line, with an item.
        case item
        /// Out of line, until the stream's credit comes.
        case stream
        /// Out of line, until the stream's credit comes, or the connection's reaches for the whole next frame.
        case whole
    }

    /// Whether the application may send the next item.
    enum Sender: Hashable, Sendable {
        case goesOn
        /// The stream's credit does not reach for what waits.
        case waitsForStream
        /// The connection has no room for more.
        case waitsForRoom
    }

    let serial: UInt32
    let priority: FramePriority
    /// The stream whose lane it is.
    var stream: StreamID?
    /// The credit for items on the stream.
    var window: SendWindow
    var payloads: Deque<LanePayload> = []
    var place = Place.none
    /// The number of its valid place in a line; 0 without one.
    var ticket: UInt64 = 0
    /// The cost of its items that wait, as far as that is known before they are cut.
    var itemCost: UInt64 = 0
    /// The part of the connection's credit that it takes next.
    var claim: UInt64 = 0
    var sender = Sender.goesOn
    /// A credit that waits to be sent.
    var creditDue: UInt64?
    /// Whether it stands in the line of those with a credit to send.
    var isInCreditLine = false

    init(serial: UInt32, priority: FramePriority, stream: StreamID? = nil, window: SendWindow = SendWindow(0)) {
        self.serial = serial
        self.priority = priority
        self.stream = stream
        self.window = window
    }

    /// Whether the stream's credit reaches for all that waits.
    var isCovered: Bool { self.itemCost <= self.window.free }

    /// The part of the connection's credit that it claims where it stands.
    var dueClaim: UInt64 { self.place == .item ? min(self.itemCost, self.window.free) : 0 }
}

/// Lanes by priority, equals in the order in which they came. One that leaves before its turn stays as a stub, until
/// most are that.
struct LaneLine: Sendable {
    struct Entry: Sendable {
        var lane: SlotKey
        var ticket: UInt64
    }

    private var queue = PriorityQueue<Entry>()
    private var stubs = 0

    /// The number of places, stubs included.
    var count: Int { self.queue.count }
    /// Whether one lane stands in it, and no stub.
    var hasOne: Bool { self.queue.count == 1 }
    var first: Entry? { self.queue.first }
    var firstPriority: FramePriority? { self.queue.firstPriority }

    mutating func append(_ entry: Entry, _ priority: FramePriority) { self.queue.append(entry, priority) }

    /// Removes the first, whose turn has come.
    mutating func popFirst() { _ = self.queue.popFirst() }

    /// Removes a stub from the front.
    mutating func popStub() {
        _ = self.queue.popFirst()
        self.stubs = max(0, self.stubs - 1)
    }

    /// One of the places has become a stub.
    mutating func leave(_ lanes: borrowing Slots<StreamLane>) {
        self.stubs += 1
        guard self.stubs > 32, self.stubs > self.queue.count / 2 else { return }
        let tickets = self.queue
        self.queue = PriorityQueue()
        self.stubs = 0
        self.refill(tickets, lanes)
    }

    private mutating func refill(_ old: PriorityQueue<Entry>, _ lanes: borrowing Slots<StreamLane>) {
        var old = old
        while let priority = old.firstPriority, let entry = old.popFirst() {
            if lanes[entry.lane]?.ticket == entry.ticket { self.queue.append(entry, priority) }
        }
    }
}
