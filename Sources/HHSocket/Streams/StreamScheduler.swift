import DequeModule
import HeapModule
import NIOCore

/// The payloads that one side of a connection has to send once streams are agreed on, and whose turn it is.
///
/// The shell pulls a frame whenever the socket takes more (``next()``). Credits and cancels leave first. What else
/// waits stands in lanes, one for each serial: those of the highest priority take turns, frame by frame. Within a lane
/// nothing passes, so that an end leaves after its stream's items. Items need credit: a lane whose stream has none
/// leaves the line until its credit comes, so that a frame costs the same however many lanes wait. Where it is the
/// connection's credit that does not reach for the item whose turn it is, items wait, and whatever costs nothing
/// leaves.
package struct StreamScheduler: Sendable {
    /// A frame whose turn it is.
    package struct Departure: Sendable {
        package var frame: Frame
        /// The stream whose payload it is part of.
        package var stream: StreamID?
        /// The kind of the payload that it is part of; nil for credits and cancels.
        package var kind: LanePayload.Kind?
        /// Whether the payload has left with it.
        package var isWhole: Bool
    }

    /// A lane that waits for the connection's credit to reach for a whole frame.
    private struct Wanting: Comparable, Sendable {
        var cost: UInt64
        var entry: LaneLine.Entry

        static func < (one: Wanting, other: Wanting) -> Bool {
            (one.cost, one.entry.ticket) < (other.cost, other.entry.ticket)
        }

        static func == (one: Wanting, other: Wanting) -> Bool { one.entry.ticket == other.entry.ticket }
    }

    /// The credit for items on the connection.
    package private(set) var connection: SendWindow
    /// The most that items which may leave hold before senders wait.
    private let maximumClaims: UInt64

    private var lanes = Slots<StreamLane>()
    /// The lanes of payloads that belong to no stream, by serial.
    private var plainLanes: [UInt32: SlotKey] = [:]
    private var freeLine = LaneLine()
    private var itemLine = LaneLine()
    private var wanting = Heap<Wanting>()
    /// The number of entries of ``wanting`` that mean nothing any more.
    private var wantingStubs = 0
    private var lastTicket: UInt64 = 0
    /// The sum of what lanes claim.
    private var claims: UInt64 = 0
    /// Lanes whose senders wait for room.
    private var roomLine: Deque<SlotKey> = []
    private var creditLine: Deque<SlotKey> = []
    private var connectionCreditDue: UInt64?
    private var cancels: Deque<Frame> = []
    /// Streams whose senders may go on.
    private var goingOn: [StreamID] = []

    /// The number of bytes of payloads that wait, and a constant for each.
    package private(set) var waitingBytes = 0
    /// The part of it that belongs to items, which wait for credit.
    package private(set) var waitingItemBytes = 0
    /// The number of payloads that wait.
    package private(set) var waitingCount = 0

    /// The number of bytes that a payload counts beside its own while it waits.
    private static var payloadOverhead: Int { 64 }

    /// - Parameters:
    ///   - connectionWindow: The window that the other side announced for all streams together.
    ///   - maximumQueuedBytes: The most bytes of items that may leave and wait for the socket before senders wait.
    package init(connectionWindow: UInt32, maximumQueuedBytes: Int) {
        self.connection = SendWindow(connectionWindow)
        self.maximumClaims = UInt64(max(0, maximumQueuedBytes))
    }

    /// The number of lanes.
    package var laneCount: Int { self.lanes.count }
    /// The number of places that lanes occupy, stubs included.
    package var occupiedPlaces: Int {
        self.freeLine.count + self.itemLine.count + self.wanting.count + self.roomLine.count + self.creditLine.count
            + self.cancels.count
    }

    // MARK: Lanes

    /// Opens the lane of a stream.
    ///
    /// - Parameter window: The window that the other side announced for a stream.
    mutating func open(_ stream: StreamID?, serial: UInt32, priority: FramePriority, window: UInt32) -> SlotKey {
        self.lanes.insert(
            StreamLane(serial: serial, priority: priority, stream: stream, window: SendWindow(window))
        )
    }

    /// Names the stream of a lane.
    mutating func assign(_ stream: StreamID, to lane: SlotKey) { self.lanes[lane]?.stream = stream }

    /// Closes a lane and drops what waits in it.
    ///
    /// - Returns: The payload that has begun to leave, and has not left.
    @discardableResult
    mutating func close(_ key: SlotKey) -> LanePayload.Kind? {
        let begun = self.clear(key)
        self.leaveLine(key)
        let hasCredit = self.lanes[key]?.isInCreditLine ?? false
        let waits = self.lanes[key]?.sender == .waitsForRoom
        self.lanes.remove(key)
        if hasCredit { Self.trim(&self.creditLine, self.lanes) }
        if waits { Self.trim(&self.roomLine, self.lanes) }
        self.lookForRoom()
        return begun
    }

    /// Drops what waits in a lane, which stays.
    ///
    /// - Returns: The payload that has begun to leave, and has not left.
    mutating func silence(_ key: SlotKey) -> LanePayload.Kind? {
        let begun = self.clear(key)
        self.leaveLine(key)
        self.lookForRoom()
        return begun
    }

    private mutating func clear(_ key: SlotKey) -> LanePayload.Kind? {
        guard let payloads = self.lanes[key]?.payloads else { return nil }
        for payload in payloads { self.forget(payload) }
        self.lanes[key]?.payloads.removeAll()
        self.lanes[key]?.itemCost = 0
        self.updateClaim(key)
        return payloads.first.flatMap { $0.hasBegun ? $0.kind : nil }
    }

    private mutating func forget(_ payload: LanePayload) {
        self.countWaiting(-payload.bytes.readableBytes - Self.payloadOverhead, payload.kind)
        self.waitingCount -= 1
    }

    private mutating func countWaiting(_ change: Int, _ kind: LanePayload.Kind) {
        self.waitingBytes += change
        if kind == .item { self.waitingItemBytes += change }
    }

    /// Drops keys of lanes that are gone, once they are most.
    private static func trim(_ line: inout Deque<SlotKey>, _ lanes: Slots<StreamLane>) {
        guard line.count > 32, line.count > 2 * lanes.count else { return }
        line.removeAll { !lanes.has($0) }
    }

    // MARK: Payloads

    /// Adds a payload to a lane.
    mutating func append(_ payload: LanePayload, to key: SlotKey) {
        guard let place = self.lanes[key]?.place else { return }
        self.countWaiting(payload.bytes.readableBytes + Self.payloadOverhead, payload.kind)
        self.waitingCount += 1
        self.lanes[key]?.itemCost += payload.cost
        self.lanes[key]?.payloads.append(payload)
        if place == .none { self.enterLine(key) } else { self.updateClaim(key) }
    }

    /// Whether the application may send the next item on a stream; if not, it is among those of ``takeGoingOn()``
    /// when it may.
    mutating func mayGoOn(_ key: SlotKey) -> Bool {
        guard let lane = self.lanes[key] else { return false }
        guard lane.isCovered else {
            // One that waits for room finds out when there is some.
            if lane.sender != .waitsForRoom { self.lanes[key]?.sender = .waitsForStream }
            return false
        }
        guard self.hasRoom else {
            if lane.sender != .waitsForRoom { self.roomLine.append(key) }
            self.lanes[key]?.sender = .waitsForRoom
            return false
        }
        return true
    }

    /// The cost of items after which the sender on a lane would not be told to wait. Other lanes may use the
    /// connection's part of it meanwhile.
    func allowance(_ key: SlotKey) -> UInt64 {
        guard let lane = self.lanes[key], lane.sender == .goesOn else { return 0 }
        let own = lane.window.free.subtracting(lane.itemCost)
        return min(own, min(self.connection.free, self.maximumClaims).subtracting(self.claims))
    }

    /// Whether anything waits in a lane.
    func hasWaiting(_ key: SlotKey) -> Bool { self.lanes[key].map { !$0.payloads.isEmpty } ?? false }

    /// Whether senders that waited may go on.
    var hasGoingOn: Bool { !self.goingOn.isEmpty }

    /// Takes out the streams whose senders waited and may go on.
    mutating func takeGoingOn() -> [StreamID] {
        defer { self.goingOn = [] }
        return self.goingOn
    }

    /// Whether the connection's credit reaches for all items that may leave, and they are not too many.
    private var hasRoom: Bool { self.claims <= self.connection.free && self.claims <= self.maximumClaims }

    /// Replaces all that waits in a stream's lane by its final answer. The lane is no stream's any more.
    ///
    /// - Returns: Whether that was possible: no final answer has begun to leave.
    mutating func conclude(_ key: SlotKey, with payload: LanePayload) -> Bool {
        guard let lane = self.lanes[key] else { return false }
        if let first = lane.payloads.first, first.kind == .last, first.hasBegun { return false }
        self.close(key)
        self.sendPlain(payload, serial: lane.serial, priority: lane.priority)
        return true
    }

    /// Adds a payload that belongs to no stream: a request, an answer, a push. Those of one serial leave in their
    /// order.
    package mutating func sendPlain(_ payload: LanePayload, serial: UInt32, priority: FramePriority = .default) {
        if let key = self.plainLanes[serial] {
            self.append(payload, to: key)
        } else {
            let key = self.lanes.insert(StreamLane(serial: serial, priority: priority))
            self.plainLanes[serial] = key
            self.append(payload, to: key)
        }
    }

    /// The progress of a payload that belongs to no stream, when it was dropped.
    package enum Dropped: Hashable, Sendable {
        /// There was none.
        case nothing
        case beforeItBegan
        /// A piece has left, and its last has not.
        case halfway
    }

    /// Drops what waits with this serial and belongs to no stream.
    package mutating func dropPlain(serial: UInt32) -> Dropped {
        guard let key = self.plainLanes.removeValue(forKey: serial) else { return .nothing }
        return self.close(key) == nil ? .beforeItBegan : .halfway
    }

    /// Sends a cancel, which passes what waits.
    mutating func sendCancel(_ frame: Frame) { self.cancels.append(frame) }

    /// Drops all: the connection is gone.
    mutating func removeAll() {
        self = StreamScheduler(connectionWindow: 0, maximumQueuedBytes: 0)
    }

    // MARK: Credit

    /// A credit has come for a stream.
    ///
    /// - Returns: Whether it moves anything.
    mutating func grant(_ credit: UInt64, to key: SlotKey) -> Bool {
        guard self.lanes[key]?.window.grant(credit) ?? false, let lane = self.lanes[key] else { return false }
        if lane.place == .stream || lane.place == .whole {
            self.leaveLine(key)
            self.enterLine(key)
        } else {
            self.updateClaim(key)
        }
        self.lookForStreamRoom(key)
        return true
    }

    /// A credit has come for the connection.
    ///
    /// - Returns: Whether it moves anything.
    mutating func grantConnection(_ credit: UInt64) -> Bool {
        guard self.connection.grant(credit) else { return false }
        var budget = self.connection.free
        while let next = self.wanting.min, next.cost <= budget {
            self.wanting.removeMin()
            guard self.lanes[next.entry.lane]?.ticket == next.entry.ticket else {
                self.wantingStubs -= 1
                continue
            }
            budget -= next.cost
            self.lanes[next.entry.lane]?.ticket = 0
            self.enterLine(next.entry.lane)
        }
        self.lookForRoom()
        return true
    }

    /// A credit is to be sent for a stream. A later one takes the place of one that waits.
    mutating func sendCredit(_ credit: UInt64, of key: SlotKey) {
        guard let isInLine = self.lanes[key]?.isInCreditLine else { return }
        self.lanes[key]?.creditDue = credit
        guard !isInLine else { return }
        self.lanes[key]?.isInCreditLine = true
        self.creditLine.append(key)
    }

    /// A credit is to be sent for the connection.
    mutating func sendConnectionCredit(_ credit: UInt64) { self.connectionCreditDue = credit }

    // MARK: Lines

    /// Puts a lane into the line of its next payload.
    private mutating func enterLine(_ key: SlotKey) {
        guard let kind = self.lanes[key]?.payloads.first?.kind, let priority = self.lanes[key]?.priority else {
            self.lanes[key]?.place = .none
            return self.updateClaim(key)
        }
        self.lastTicket += 1
        self.lanes[key]?.ticket = self.lastTicket
        let entry = LaneLine.Entry(lane: key, ticket: self.lastTicket)
        if kind == .item {
            self.lanes[key]?.place = .item
            self.itemLine.append(entry, priority)
        } else {
            self.lanes[key]?.place = .free
            self.freeLine.append(entry, priority)
        }
        self.updateClaim(key)
    }

    /// Takes a lane out of its line before its turn.
    private mutating func leaveLine(_ key: SlotKey) {
        guard let place = self.lanes[key]?.place else { return }
        self.lanes[key]?.ticket = 0
        self.lanes[key]?.place = .none
        switch place {
        case .none, .stream: break
        case .free: self.freeLine.leave(self.lanes)
        case .item: self.itemLine.leave(self.lanes)
        case .whole:
            self.wantingStubs += 1
            guard self.wantingStubs > 32, self.wantingStubs > self.wanting.count / 2 else { break }
            self.wanting = Heap(
                self.wanting.unordered.filter { self.lanes[$0.entry.lane]?.ticket == $0.entry.ticket }
            )
            self.wantingStubs = 0
        }
        self.updateClaim(key)
    }

    private mutating func updateClaim(_ key: SlotKey) {
        guard let lane = self.lanes[key] else { return }
        let claim = lane.dueClaim
        guard claim != lane.claim else { return }
        self.claims = self.claims - lane.claim + claim
        self.lanes[key]?.claim = claim
    }

    /// One of the two lines.
    private enum Line {
        case free, item
    }

    private subscript(line: Line) -> LaneLine {
        get {
            switch line {
            case .free: self.freeLine
            case .item: self.itemLine
            }
        }
        _modify {
            switch line {
            case .free: yield &self.freeLine
            case .item: yield &self.itemLine
            }
        }
    }

    private mutating func dropStubs(_ line: Line) {
        while let first = self[line].first, self.lanes[first.lane]?.ticket != first.ticket {
            self[line].popStub()
        }
    }

    // MARK: Turns

    /// The next frame to leave; nil where nothing may.
    package mutating func next() -> Departure? {
        if let control = self.nextControl() { return control }
        self.dropStubs(.free)
        self.dropStubs(.item)
        var mayItemsLeave = true
        while mayItemsLeave, let entry = self.itemLine.first, self.isItemsTurn(entry) {
            let lane = entry.lane
            switch self.cut(lane) {
            case .send(let length): return self.depart(lane, length: length, .item)
            case .waitForStream: self.setAside(lane, .stream)
            case .waitForWhole: self.setAside(lane, .whole)
            case .waitForConnection: mayItemsLeave = false
            }
            self.dropStubs(.item)
        }
        guard let lane = self.freeLine.first?.lane, let bytes = self.lanes[lane]?.payloads.first?.bytes else {
            return nil
        }
        return self.depart(lane, length: min(bytes.readableBytes, StreamFrames.maximumPieceLength), .free)
    }

    /// Whether the first item leaves before the first of what costs nothing.
    private func isItemsTurn(_ item: LaneLine.Entry) -> Bool {
        guard let free = self.freeLine.first, let freePriority = self.freeLine.firstPriority,
            let priority = self.itemLine.firstPriority
        else { return true }
        return priority > freePriority || priority == freePriority && item.ticket < free.ticket
    }

    private func cut(_ key: SlotKey) -> Cut {
        guard let lane = self.lanes[key], let payload = lane.payloads.first else { return .waitForStream }
        return Cut.next(rest: payload.bytes.readableBytes, stream: lane.window, connection: self.connection)
    }

    /// Takes the first lane with an item out of line, until credit comes.
    private mutating func setAside(_ key: SlotKey, _ place: StreamLane.Place) {
        self.itemLine.popFirst()
        self.lanes[key]?.place = place
        if place == .whole, let ticket = self.lanes[key]?.ticket, let payload = self.lanes[key]?.payloads.first {
            let cost = StreamFrames.cost(min(payload.bytes.readableBytes, StreamFrames.maximumPieceLength))
            self.wanting.insert(Wanting(cost: cost, entry: LaneLine.Entry(lane: key, ticket: ticket)))
        } else {
            self.lanes[key]?.ticket = 0
        }
        self.updateClaim(key)
        self.lookForRoom()
    }

    /// Sends a frame of the first lane of a line.
    private mutating func depart(
        _ key: SlotKey,
        length: Int,
        _ line: Line
    ) -> Departure? {
        guard let serial = self.lanes[key]?.serial, let first = self.lanes[key]?.payloads.first,
            let bytes = first.bytes.getSlice(at: first.bytes.readerIndex, length: length)
        else { return nil }
        let stream = self.lanes[key]?.stream
        let rest = first.bytes.readableBytes - length
        let type = rest > 0 ? first.type | FrameType.continuesFlag : first.type
        self.countWaiting(-length, first.kind)
        if first.kind == .item {
            let cost = StreamFrames.cost(length)
            let restCost = rest > 0 ? StreamFrames.wholeCost(rest) : 0
            self.connection.send(cost)
            self.lanes[key]?.window.send(cost)
            self.lanes[key]?.itemCost -= first.cost - restCost
        }
        if rest > 0 {
            self.lanes[key]?.payloads[0].bytes.moveReaderIndex(forwardBy: length)
            self.lanes[key]?.payloads[0].hasBegun = true
        } else {
            self.countWaiting(-Self.payloadOverhead, first.kind)
            self.waitingCount -= 1
            self.lanes[key]?.payloads.removeFirst()
        }
        self.takeTurn(key, line)
        if first.kind == .item {
            self.lookForStreamRoom(key)
            self.lookForRoom()
        }
        return Departure(
            frame: Frame(type: type, serial: serial, status: first.status, payload: bytes),
            stream: stream,
            kind: first.kind,
            isWhole: rest == 0
        )
    }

    /// Puts the first lane of a line behind the others of its priority.
    private mutating func takeTurn(_ key: SlotKey, _ line: Line) {
        let next = self.lanes[key]?.payloads.first?.kind
        // The only lane has the next turn as well, unless another line has waited for longer.
        if self[line].hasOne, let next, (next == .item) == (self.lanes[key]?.place == .item),
            self.isAlone(line)
        {
            return self.updateClaim(key)
        }
        self[line].popFirst()
        self.lanes[key]?.ticket = 0
        self.enterLine(key)
        guard next == nil, let lane = self.lanes[key], lane.stream == nil, self.plainLanes[lane.serial] == key else {
            return
        }
        self.plainLanes[lane.serial] = nil
        self.lanes.remove(key)
    }

    /// Whether nothing stands in the other line.
    private func isAlone(_ line: Line) -> Bool {
        self[line == .item ? .free : .item].count == 0
    }

    private mutating func nextControl() -> Departure? {
        if let cancel = self.cancels.popFirst() { return Departure(frame: cancel, isWhole: true) }
        if let credit = self.connectionCreditDue.take() {
            return Departure(
                frame: StreamFrames.credit(serial: FrameSerial.connectionCredit, credit),
                isWhole: true
            )
        }
        while let key = self.creditLine.popFirst() {
            self.lanes[key]?.isInCreditLine = false
            guard let lane = self.lanes[key], let credit = lane.creditDue else { continue }
            self.lanes[key]?.creditDue = nil
            return Departure(
                frame: StreamFrames.credit(serial: lane.serial, credit),
                stream: lane.stream,
                isWhole: true
            )
        }
        return nil
    }

    // MARK: Senders

    /// The sender of a stream may go on, or waits for something else, since its credit or what waits has changed.
    private mutating func lookForStreamRoom(_ key: SlotKey) {
        guard self.lanes[key]?.sender == .waitsForStream else { return }
        self.lanes[key]?.sender = .goesOn
        guard self.mayGoOn(key), let stream = self.lanes[key]?.stream else { return }
        self.goingOn.append(stream)
    }

    /// Senders go on while there is room.
    private mutating func lookForRoom() {
        while self.hasRoom, let key = self.roomLine.popFirst() {
            guard self.lanes[key]?.sender == .waitsForRoom else { continue }
            self.lanes[key]?.sender = .goesOn
            guard self.mayGoOn(key), let stream = self.lanes[key]?.stream else { continue }
            self.goingOn.append(stream)
        }
    }
}
