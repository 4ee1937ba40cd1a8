// SPDX-License-Identifier: Apache-2.0
import DequeModule
import NIOCore

/// The payloads that one side of a connection has to send once streams are agreed on, and their order.
///
/// The shell pulls a frame whenever the socket accepts more (``next()``). Credits and cancels are sent first. Other
/// payloads wait in lanes, one for each serial: those of the highest priority alternate, frame by frame. Within a lane
/// the order is kept, so that an end is sent after its stream's items. Items need credit: a lane whose stream has none
/// leaves the queue until credit arrives, so that the cost of a frame does not depend on the number of waiting lanes.
/// If the connection's credit does not suffice for the next item, all items wait, and payloads that cost
/// nothing are sent.
package struct StreamScheduler: ~Copyable, Sendable {
    /// A frame to send next.
    package struct Departure: Sendable {
        package var frame: Frame
        /// The stream whose payload it is part of.
        package var stream: StreamID?
        /// The kind of the payload that it is part of; nil for credits and cancels.
        package var kind: LanePayload.Kind?
        /// Whether it completes the payload.
        package var isWhole: Bool
    }

    // Not private: the compiler (6.3) fails where another file destroys a noncopyable table of a private type.
    /// The credit that a lane waits for. Lanes that wait for as much are ordered as they began to.
    struct Price: Comparable, Sendable {
        var cost: UInt64
        var ticket: UInt64

        static func < (one: Price, other: Price) -> Bool { (one.cost, one.ticket) < (other.cost, other.ticket) }
    }

    /// The credit for items on the connection.
    package private(set) var connection: SendWindow
    /// The largest cost of items that may be sent before senders must wait.
    private let maximumClaims: UInt64

    private var lanes = SlotTable<StreamLane>()
    /// The lanes of payloads that belong to no stream, by serial.
    private var plainLanes: [UInt32: SlotKey] = [:]
    private var freeLine = LaneLine()
    private var itemLine = LaneLine()
    /// The lanes that wait for the connection's credit to suffice for a whole frame.
    private var wanting = AlarmHeap<Price, SlotKey>()
    private var lastTicket: UInt64 = 0
    /// The sum of the lanes' claims.
    private var claims: UInt64 = 0
    /// Lanes whose senders wait for room.
    private var roomLine: Deque<SlotKey> = []
    private var creditLine: Deque<SlotKey> = []
    private var connectionCreditDue: UInt64?
    private var cancels: Deque<Frame> = []
    /// The streams whose senders may continue.
    private var unblocked: [StreamID] = []

    /// The number of bytes of payloads that wait, and a constant for each.
    package private(set) var waitingBytes = 0
    /// The part of it that belongs to items, which wait for credit.
    package private(set) var waitingItemBytes = 0
    /// The number of payloads that wait.
    package private(set) var waitingCount = 0

    /// The number of slots of lanes that are kept even if there is none.
    static var slotsKept: Int { 16 }
    /// The number of bytes that a waiting payload counts in addition to its own.
    private static var payloadOverhead: Int { 64 }

    /// - Parameters:
    ///   - connectionWindow: The window that the other side announced for all streams together.
    ///   - maximumQueuedBytes: The largest number of bytes of items that may wait for the socket before senders must
    ///     wait.
    package init(connectionWindow: UInt32, maximumQueuedBytes: Int) {
        self.connection = SendWindow(connectionWindow)
        self.maximumClaims = UInt64(max(0, maximumQueuedBytes))
    }

    /// Whether there is no lane, and nothing to send.
    package var isQuiet: Bool {
        self.lanes.count == 0 && self.waitingCount == 0 && self.connectionCreditDue == nil && self.cancels.isEmpty
    }

    /// The number of lanes.
    package var laneCount: Int { self.lanes.count }
    /// The number of slots that lanes occupy, stubs included.
    package var occupiedSlots: Int {
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
    mutating func assign(_ stream: StreamID, to lane: SlotKey) { self.lanes.with(lane) { $0.stream = stream } }

    /// The cost of a lane's items that were sent so far.
    func sent(_ key: SlotKey) -> UInt64 { self.lanes[key]?.window.sent ?? 0 }

    /// Closes a lane and drops its waiting payloads.
    ///
    /// - Returns: The kind of the payload that was sent partly.
    @discardableResult
    mutating func close(_ key: SlotKey) -> LanePayload.Kind? {
        let begun = self.clear(key)
        self.removeFromLine(key)
        let hasCredit = self.lanes[key]?.isInCreditLine ?? false
        let waits = self.lanes[key]?.sender == .waitsForRoom
        self.remove(key)
        if hasCredit { Self.trim(&self.creditLine, self.lanes) }
        if waits { Self.trim(&self.roomLine, self.lanes) }
        self.checkRoom()
        return begun
    }

    /// Drops the waiting payloads of a lane, which stays.
    ///
    /// - Returns: The kind of the payload that was sent partly.
    mutating func silence(_ key: SlotKey) -> LanePayload.Kind? {
        let begun = self.clear(key)
        self.removeFromLine(key)
        self.checkRoom()
        return begun
    }

    private mutating func clear(_ key: SlotKey) -> LanePayload.Kind? {
        guard let payloads = self.lanes[key]?.payloads else { return nil }
        for payload in payloads { self.forget(payload) }
        self.lanes.with(key) { $0.removePayloads() }
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

    /// Removes the keys of closed lanes, once they are most.
    private static func trim(_ line: inout Deque<SlotKey>, _ lanes: borrowing SlotTable<StreamLane>) {
        guard line.count > 32, line.count > 2 * lanes.count else { return }
        line.removeAll { !lanes.contains($0) }
    }

    // MARK: Payloads

    /// Adds a payload to a lane.
    mutating func append(_ payload: LanePayload, to key: SlotKey) {
        _ = self.enter(payload, key)
    }

    /// Adds an item to a lane.
    ///
    /// - Returns: The value of ``mayProceed(_:)``.
    mutating func send(_ item: LanePayload, on key: SlotKey) -> Bool {
        guard let isCovered = self.enter(item, key) else { return false }
        if isCovered && self.hasRoom || self.mayProceed(key) { return true }
        self.lanes.with(key) { $0.detachWaiting() }
        return false
    }

    /// Detaches the payloads that wait for the other side, which may be slices of reads or of longer bodies.
    package mutating func detachWaiting() {
        for key in self.lanes.keys(where: { _ in true }) { self.lanes.with(key) { $0.detachWaiting() } }
    }

    /// - Returns: Whether the stream's credit reaches for all that waits; nil without such a lane.
    private mutating func enter(_ payload: LanePayload, _ key: SlotKey) -> Bool? {
        let (length, kind) = (payload.bytes.readableBytes, payload.kind)
        guard let entered = self.lanes.with(key, { $0.append(payload) }) else { return nil }
        self.countWaiting(length + Self.payloadOverhead, kind)
        self.waitingCount += 1
        self.follow(entered.claim)
        if entered.position == .none { self.enterLine(key) }
        return entered.isCovered
    }

    /// Whether the application may send the next item on a stream; if not, the stream is in ``takeUnblocked()`` when it
    /// may.
    mutating func mayProceed(_ key: SlotKey) -> Bool {
        guard let (isCovered, sender) = self.lanes.with(key, { ($0.isCovered, $0.sender) }) else { return false }
        guard isCovered else {
            // A sender that waits for room is notified when there is some.
            if sender != .waitsForRoom { self.lanes.with(key) { $0.sender = .waitsForStream } }
            return false
        }
        guard self.hasRoom else {
            if sender != .waitsForRoom { self.roomLine.append(key) }
            self.lanes.with(key) { $0.sender = .waitsForRoom }
            return false
        }
        return true
    }

    /// The cost of items after which the sender on a lane would not have to wait. Other lanes may use the connection's
    /// part of it meanwhile.
    func allowance(_ key: SlotKey) -> UInt64 {
        guard let lane = self.lanes[key], lane.sender == .proceeds else { return 0 }
        let own = lane.window.free.subtracting(lane.itemCost)
        return min(own, min(self.connection.free, self.maximumClaims).subtracting(self.claims))
    }

    /// Whether anything waits in a lane.
    func hasWaiting(_ key: SlotKey) -> Bool { self.lanes[key].map { !$0.payloads.isEmpty } ?? false }

    /// Whether senders that waited may continue.
    var hasUnblocked: Bool { !self.unblocked.isEmpty }

    /// Removes and returns the streams whose senders waited and may continue.
    mutating func takeUnblocked() -> [StreamID] {
        defer { self.unblocked = [] }
        return self.unblocked
    }

    /// Whether the connection's credit suffices for all items that may be sent, and they are not too many.
    private var hasRoom: Bool { self.claims <= self.connection.free && self.claims <= self.maximumClaims }

    /// Replaces all waiting payloads of a stream's lane by its final answer. The lane then belongs to no stream.
    ///
    /// - Returns: Whether that was possible, because the sending of a final answer had not begun.
    mutating func conclude(_ key: SlotKey, with payload: LanePayload) -> Bool {
        guard let lane = self.lanes[key] else { return false }
        if let first = lane.payloads.first, first.kind == .last, first.hasBegun { return false }
        self.close(key)
        self.sendPlain(payload, serial: lane.serial, priority: lane.priority)
        return true
    }

    /// Adds a payload that belongs to no stream: a request, an answer, a push. Those of one serial are sent in order.
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
        /// There was no payload.
        case nothing
        case beforeItBegan
        /// Some of its pieces were sent, but not the last one.
        case halfway
    }

    /// Drops the waiting payloads with this serial that belong to no stream.
    package mutating func dropPlain(serial: UInt32) -> Dropped {
        guard let key = self.plainLanes.removeValue(forKey: serial) else { return .nothing }
        return self.close(key) == nil ? .beforeItBegan : .halfway
    }

    /// Sends a cancel, which overtakes waiting payloads.
    mutating func sendCancel(_ frame: Frame) { self.cancels.append(frame) }

    /// Drops everything, because the connection was lost.
    mutating func removeAll() {
        self = StreamScheduler(connectionWindow: 0, maximumQueuedBytes: 0)
    }

    // MARK: Credit

    /// Records a credit for a stream.
    ///
    /// - Returns: Whether it has an effect.
    mutating func grant(_ credit: UInt64, to key: SlotKey) -> Bool {
        let former = self.lanes.with(key) { $0.window.grant(credit) ? $0.position : nil }
        guard let position = former ?? nil else { return false }
        if position == .stream || position == .whole {
            self.removeFromLine(key)
            self.enterLine(key)
        } else {
            self.updateClaim(key)
        }
        self.checkStreamRoom(key)
        return true
    }

    /// Records a credit for the connection.
    ///
    /// - Returns: Whether it has an effect.
    mutating func grantConnection(_ credit: UInt64) -> Bool {
        guard self.connection.grant(credit) else { return false }
        var budget = self.connection.free
        while let next = self.wanting.popDue(now: Price(cost: budget, ticket: .max)) {
            guard Self.isWanted(next, self.lanes) else { continue }
            budget -= next.time.cost
            self.lanes.with(next.key) { $0.ticket = 0 }
            self.enterLine(next.key)
        }
        self.checkRoom()
        return true
    }

    /// Sends a credit for a stream. It replaces one that waits.
    mutating func sendCredit(_ credit: UInt64, of key: SlotKey) {
        let wasInLine = self.lanes.with(key) { lane in
            lane.creditDue = credit
            defer { lane.isInCreditLine = true }
            return lane.isInCreditLine
        }
        if wasInLine == false { self.creditLine.append(key) }
    }

    /// Sends a credit for the connection.
    mutating func sendConnectionCredit(_ credit: UInt64) { self.connectionCreditDue = credit }

    // MARK: Lines

    /// Puts a lane into the line of its next payload.
    private mutating func enterLine(_ key: SlotKey) {
        guard let (next, priority) = self.lanes.with(key, { ($0.nextKind, $0.priority) }) else { return }
        guard let kind = next else {
            self.lanes.with(key) { $0.position = .none }
            return self.updateClaim(key)
        }
        self.lastTicket += 1
        let ticket = self.lastTicket
        self.lanes.with(key) { lane in
            lane.ticket = ticket
            lane.position = kind == .item ? .item : .free
        }
        let entry = LaneLine.Entry(lane: key, ticket: self.lastTicket)
        if kind == .item {
            self.itemLine.append(entry, priority)
        } else {
            self.freeLine.append(entry, priority)
        }
        self.updateClaim(key)
    }

    /// Removes a lane from its queue while it waits.
    private mutating func removeFromLine(_ key: SlotKey) {
        let former = self.lanes.with(key) { lane in
            defer { (lane.ticket, lane.position) = (0, .none) }
            return lane.position
        }
        guard let former else { return }
        switch former {
        case .none, .stream: break
        case .free: self.freeLine.makeStub(self.lanes)
        case .item: self.itemLine.makeStub(self.lanes)
        case .whole:
            if self.wanting.isCrowded(owners: self.lanes.count) { Self.sweep(&self.wanting, self.lanes) }
        }
        self.updateClaim(key)
    }

    // The lanes are borrowed, while the heap is mutated.

    private static func sweep(_ wanting: inout AlarmHeap<Price, SlotKey>, _ lanes: borrowing SlotTable<StreamLane>) {
        wanting.sweep { Self.isWanted($0, lanes) }
    }

    private static func isWanted(
        _ alarm: AlarmHeap<Price, SlotKey>.Alarm,
        _ lanes: borrowing SlotTable<StreamLane>
    ) -> Bool {
        lanes[alarm.key]?.ticket == alarm.time.ticket
    }

    private mutating func updateClaim(_ key: SlotKey) {
        if let claim = self.lanes.with(key, { $0.updateClaim() }) { self.follow(claim) }
    }

    private mutating func follow(_ claim: StreamLane.ClaimChange) {
        self.claims = self.claims - claim.old + claim.new
    }

    /// The two queues of lanes.
    private enum Line {
        case free, item
    }

    /// Removes stubs from the front of a queue.
    private static func dropStubs(_ line: inout LaneLine, _ lanes: inout SlotTable<StreamLane>) {
        while let first = line.first, lanes.with(first.lane, { $0.ticket }) != first.ticket { line.popStub() }
    }

    // MARK: Scheduling

    /// The next frame to send; nil if none may be sent.
    package mutating func next() -> Departure? {
        if let control = self.nextControl() { return control }
        Self.dropStubs(&self.freeLine, &self.lanes)
        Self.dropStubs(&self.itemLine, &self.lanes)
        var maySendItems = true
        while maySendItems, let entry = self.itemLine.first, self.itemGoesFirst(entry) {
            let lane = entry.lane
            let connection = self.connection
            switch self.lanes.with(lane, { $0.cut(connection) }) ?? .waitForStream {
            case .send(let length): return self.depart(lane, length: length, .item)
            case .waitForStream: self.setAside(lane, .stream)
            case .waitForWhole: self.setAside(lane, .whole)
            case .waitForConnection: maySendItems = false
            }
            Self.dropStubs(&self.itemLine, &self.lanes)
        }
        guard let lane = self.freeLine.first?.lane, let length = self.lanes.with(lane, { $0.nextLength }) else {
            return nil
        }
        return self.depart(lane, length: min(length, StreamFrames.maximumPieceLength), .free)
    }

    /// Whether the first item is sent before the first payload that costs nothing.
    private func itemGoesFirst(_ item: LaneLine.Entry) -> Bool {
        guard let free = self.freeLine.first, let freePriority = self.freeLine.firstPriority,
            let priority = self.itemLine.firstPriority
        else { return true }
        return priority > freePriority || priority == freePriority && item.ticket < free.ticket
    }

    /// Removes the first lane with an item from the queue, until credit arrives.
    private mutating func setAside(_ key: SlotKey, _ position: StreamLane.Position) {
        self.itemLine.popFirst()
        let price = self.lanes.with(key) { lane -> Price? in
            lane.position = position
            if position == .whole {
                let length = min(lane.nextLength, StreamFrames.maximumPieceLength)
                return Price(cost: StreamFrames.cost(length), ticket: lane.ticket)
            }
            lane.ticket = 0
            return nil
        }
        if let price = price ?? nil { self.wanting.insert(price, key) }
        self.updateClaim(key)
        self.checkRoom()
    }

    /// Sends a frame of the first lane of a line.
    private mutating func depart(
        _ key: SlotKey,
        length: Int,
        _ line: Line
    ) -> Departure? {
        guard let part = self.lanes.with(key, { $0.take(length) }) ?? nil else { return nil }
        self.countWaiting(part.isWhole ? -length - Self.payloadOverhead : -length, part.kind)
        if part.isWhole { self.waitingCount -= 1 }
        if part.kind == .item { self.connection.send(StreamFrames.cost(length)) }
        self.follow(part.claim)
        self.requeue(key, in: line, after: part)
        if part.kind == .item {
            if part.sender == .waitsForStream { self.checkStreamRoom(key) }
            self.checkRoom()
        }
        return Departure(frame: part.frame, stream: part.stream, kind: part.kind, isWhole: part.isWhole)
    }

    /// Moves the first lane of a queue behind the others of its priority.
    ///
    /// - Parameter part: The part of its first payload that was sent.
    private mutating func requeue(_ key: SlotKey, in line: Line, after part: StreamLane.Part) {
        // The only lane is the next one as well, unless another line has waited for longer.
        if let next = part.next, (next == .item) == (part.position == .item), self.isAlone(in: line) { return }
        switch line {
        case .free: self.freeLine.popFirst()
        case .item: self.itemLine.popFirst()
        }
        self.lanes.with(key) { $0.ticket = 0 }
        self.enterLine(key)
        guard part.next == nil, part.stream == nil, self.plainLanes[part.frame.serial] == key else { return }
        self.plainLanes[part.frame.serial] = nil
        self.remove(key)
    }

    private mutating func remove(_ key: SlotKey) {
        self.lanes.remove(key)
        _ = self.lanes.releaseMemory(keeping: Self.slotsKept)
    }

    /// Whether one lane is in a queue, and none in the other.
    private func isAlone(in line: Line) -> Bool {
        switch line {
        case .free: self.freeLine.hasOne && self.itemLine.count == 0
        case .item: self.itemLine.hasOne && self.freeLine.count == 0
        }
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
            let departure = self.lanes.with(key) { lane -> Departure? in
                lane.isInCreditLine = false
                guard let credit = lane.creditDue.take() else { return nil }
                let frame = StreamFrames.credit(serial: lane.serial, credit)
                return Departure(frame: frame, stream: lane.stream, isWhole: true)
            }
            if let departure = departure ?? nil { return departure }
        }
        return nil
    }

    // MARK: Senders

    /// Updates whether a stream's sender may continue, or what it waits for, after a change of credit or of waiting
    /// payloads.
    private mutating func checkStreamRoom(_ key: SlotKey) {
        guard self.lanes.with(key, { $0.sender }) == .waitsForStream else { return }
        self.lanes.with(key) { $0.sender = .proceeds }
        guard self.mayProceed(key), let stream = self.lanes.with(key, { $0.stream }) ?? nil else { return }
        self.unblocked.append(stream)
    }

    /// Lets senders continue while there is room.
    private mutating func checkRoom() {
        guard !self.roomLine.isEmpty else { return }
        while self.hasRoom, let key = self.roomLine.popFirst() {
            guard self.lanes[key]?.sender == .waitsForRoom else { continue }
            self.lanes.with(key) { $0.sender = .proceeds }
            guard self.mayProceed(key), let stream = self.lanes[key]?.stream else { continue }
            self.unblocked.append(stream)
        }
    }
}
