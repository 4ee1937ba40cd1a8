// SPDX-License-Identifier: Apache-2.0
import DequeModule
import NIOCore

/// A payload that waits to be divided into frames.
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

    /// The type of its frames, with the flags of the whole payload.
    package var type: UInt32
    package var status: Status
    package var kind: Kind
    /// The bytes that were not sent. No ``OwnedBytes``, since most leave without waiting: those that wait are detached
    /// by ``StreamLane/detachWaiting()``.
    package var bytes: ByteBuffer
    /// Whether a piece was sent.
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

/// The payloads that one serial has to send. They are sent in order, and alternate with those of other lanes.
struct StreamLane: Sendable {
    /// The position at which a lane waits.
    enum Position: Hashable, Sendable {
        /// It has nothing to send.
        case none
        /// In the queue, with a payload that costs nothing.
        case free
        /// In the queue, with an item.
        case item
        /// Not in the queue, until the stream gets credit.
        case stream
        /// Not in the queue, until the stream gets credit, or the connection's suffices for the whole next frame.
        case whole
    }

    /// Whether the application may send the next item.
    enum Sender: Hashable, Sendable {
        case proceeds
        /// The stream's credit does not suffice for the waiting payloads.
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
    private(set) var payloads: Deque<LanePayload> = []
    /// The number of payloads at the front that were detached.
    private var detachedCount = 0
    var position = Position.none
    /// The number of its valid entry in a line; 0 without one.
    var ticket: UInt64 = 0
    /// The cost of its waiting items, as far as it is known before they are divided.
    var itemCost: UInt64 = 0
    /// The part of the connection's credit that it takes next.
    var claim: UInt64 = 0
    var sender = Sender.proceeds
    /// A credit that waits to be sent.
    var creditDue: UInt64?
    /// Whether it is in the queue of lanes with a credit to send.
    var isInCreditLine = false

    init(serial: UInt32, priority: FramePriority, stream: StreamID? = nil, window: SendWindow = SendWindow(0)) {
        self.serial = serial
        self.priority = priority
        self.stream = stream
        self.window = window
    }

    /// Whether the stream's credit reaches for all that waits.
    var isCovered: Bool { self.itemCost <= self.window.free }

    /// The part of the connection's credit that it claims in its current position.
    var dueClaim: UInt64 { self.position == .item ? min(self.itemCost, self.window.free) : 0 }

    /// The kind of the next payload; nil if none waits.
    var nextKind: LanePayload.Kind? { self.payloads.isEmpty ? nil : self.payloads[0].kind }

    /// The number of bytes of the next payload that were not sent.
    var nextLength: Int { self.payloads.isEmpty ? 0 : self.payloads[0].bytes.readableBytes }

    /// A change of the claim.
    struct ClaimChange {
        var old: UInt64
        var new: UInt64
    }

    /// Detaches the waiting payloads from the reads, or the longer bodies, that they are slices of.
    mutating func detachWaiting() {
        // The first one, which is sent slice by slice, keeps ever fewer bytes.
        if !self.payloads.isEmpty { self.payloads[0].bytes = self.payloads[0].bytes.detached }
        while self.detachedCount < self.payloads.count {
            self.payloads[self.detachedCount].bytes = self.payloads[self.detachedCount].bytes.detached
            self.detachedCount += 1
        }
    }

    /// Drops all payloads.
    mutating func removePayloads() {
        self.payloads.removeAll()
        self.detachedCount = 0
        self.itemCost = 0
    }

    /// Adds a payload.
    ///
    /// - Returns: The lane's position, the change of its claim there, and whether the stream's credit suffices for all
    ///   waiting payloads.
    mutating func append(_ payload: LanePayload) -> (position: Position, claim: ClaimChange, isCovered: Bool) {
        self.itemCost += payload.cost
        self.payloads.append(payload)
        return (self.position, self.updateClaim(), self.isCovered)
    }

    /// Sets the claim to the value that is due.
    mutating func updateClaim() -> ClaimChange {
        let old = self.claim
        self.claim = self.dueClaim
        return ClaimChange(old: old, new: self.claim)
    }

    /// The decision on the next frame.
    func cut(_ connection: SendWindow) -> Cut {
        guard !self.payloads.isEmpty else { return .waitForStream }
        return Cut.next(rest: self.nextLength, stream: self.window, connection: connection)
    }

    /// A part of a payload that is sent.
    struct Part {
        var frame: Frame
        var kind: LanePayload.Kind
        var stream: StreamID?
        /// Whether it completes the payload.
        var isWhole: Bool
        /// The kind of the next payload; nil if none waits.
        var next: LanePayload.Kind?
        var position = Position.none
        var sender = Sender.proceeds
        /// The change of the claim in the lane's current position.
        var claim = ClaimChange(old: 0, new: 0)
    }

    /// Removes the next `length` bytes.
    mutating func take(_ length: Int) -> Part? {
        guard var part = self.takePart(length) else { return nil }
        (part.next, part.position, part.sender) = (self.nextKind, self.position, self.sender)
        part.claim = self.updateClaim()
        return part
    }

    private mutating func takePart(_ length: Int) -> Part? {
        guard !self.payloads.isEmpty, length <= self.nextLength else { return nil }
        guard length == self.nextLength else { return self.takePiece(length) }
        let payload = self.payloads.removeFirst()
        self.detachedCount = max(0, self.detachedCount - 1)
        if payload.kind == .item { self.noteSent(length, rest: 0) }
        return Part(
            frame: Frame(type: payload.type, serial: self.serial, status: payload.status, payload: payload.bytes),
            kind: payload.kind,
            stream: self.stream,
            isWhole: true
        )
    }

    private mutating func takePiece(_ length: Int) -> Part? {
        guard let bytes = self.payloads[0].bytes.readSlice(length: length) else { return nil }
        self.payloads[0].hasBegun = true
        let (type, status, kind) = (self.payloads[0].type, self.payloads[0].status, self.payloads[0].kind)
        if kind == .item { self.noteSent(length, rest: self.nextLength) }
        return Part(
            frame: Frame(type: type | FrameType.continuesFlag, serial: self.serial, status: status, payload: bytes),
            kind: kind,
            stream: self.stream,
            isWhole: false
        )
    }

    /// Records that a frame of an item is sent, of which `rest` bytes remain.
    private mutating func noteSent(_ length: Int, rest: Int) {
        self.window.send(StreamFrames.cost(length))
        let restCost = rest > 0 ? StreamFrames.wholeCost(rest) : 0
        self.itemCost -= StreamFrames.wholeCost(length + rest) - restCost
    }
}

/// Lanes by priority, equals in the order of arrival. A lane that is removed while it waits stays as a stub, until
/// most entries are stubs.
struct LaneLine: Sendable {
    struct Entry: Sendable {
        var lane: SlotKey
        var ticket: UInt64
    }

    private var queue = PriorityQueue<Entry>()
    private var stubs = 0
    private(set) var first: Entry?
    private(set) var firstPriority: FramePriority?

    /// The number of entries, stubs included.
    var count: Int { self.queue.count }
    /// Whether it has exactly one lane, and no stub.
    var hasOne: Bool { self.queue.count == 1 }

    mutating func append(_ entry: Entry, _ priority: FramePriority) {
        self.queue.append(entry, priority)
        self.noteFirst()
    }

    private mutating func noteFirst() {
        (self.first, self.firstPriority) = (self.queue.first, self.queue.firstPriority)
    }

    /// Removes the first lane.
    mutating func popFirst() {
        _ = self.queue.popFirst()
        self.noteFirst()
    }

    /// Removes a stub from the front.
    mutating func popStub() {
        self.popFirst()
        self.stubs = max(0, self.stubs - 1)
    }

    /// Records that an entry has become a stub.
    mutating func makeStub(_ lanes: borrowing SlotTable<StreamLane>) {
        self.stubs += 1
        guard self.stubs > 32, self.stubs > self.queue.count / 2 else { return }
        self.queue.removeAll { lanes[$0.lane]?.ticket != $0.ticket }
        self.stubs = 0
        self.noteFirst()
    }
}
