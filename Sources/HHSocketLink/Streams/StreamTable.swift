// SPDX-License-Identifier: Apache-2.0
import DequeModule
import NIOCore

/// The limits and terms of a connection's streams.
package struct StreamSettings: Sendable {
    /// The terms that hello agreed on.
    package var terms: StreamTerms
    /// The flags that hello agreed on.
    package var flags: UInt32
    package var format: WireFormat
    /// The longest payload that is received, in bytes, its pieces together.
    package var maximumPayloadLength: Int
    /// The largest number of received bytes that may be held: incomplete payloads, and items that the application has
    /// not taken.
    package var maximumHeldBytes: Int
    /// The largest number of bytes of items that may wait for the socket before senders must wait.
    package var maximumQueuedBytes: Int
    /// The largest number of incomplete payloads that belong to no stream.
    package var maximumUnfinished: Int
    /// The time after which a stream without an item, or a credit that moves it, ends; nil for no limit.
    package var idleLimit: TimeAmount?

    package init(
        terms: StreamTerms = StreamTerms(),
        flags: UInt32 = FrameType.allFlags,
        format: WireFormat = .standard,
        maximumPayloadLength: Int = Frame.defaultMaximumPayloadLength,
        maximumHeldBytes: Int = 64 << 20,
        maximumQueuedBytes: Int = 1 << 20,
        maximumUnfinished: Int = 1_024,
        idleLimit: TimeAmount? = .minutes(10)
    ) {
        self.terms = terms
        self.flags = flags
        self.format = format
        self.maximumPayloadLength = maximumPayloadLength
        self.maximumHeldBytes = maximumHeldBytes
        self.maximumQueuedBytes = maximumQueuedBytes
        self.maximumUnfinished = maximumUnfinished
        self.idleLimit = idleLimit
    }
}

/// The streams of one connection, on either side: ``ClientStreams`` and ``ServerStreams`` determine what each side may
/// do.
///
/// The input is frames, requests of the application and the time; the output is the frames of
/// ``StreamScheduler/next()``, and ``StreamAction``s for the shell.
package struct StreamTable: ~Copyable {
    enum Role: Hashable {
        case client, server
    }

    /// A stream, from its opening until it is over and the application has taken all of its items.
    struct Stream {
        let serial: UInt32
        /// The type of the call.
        let type: UInt32
        let kind: StreamKind
        let lane: SlotKey
        /// The window of the other side's items.
        var window: ReceiveWindow
        /// The incomplete payload: an item, or at the client the final answer.
        var assembly: PieceAssembly?
        /// Whether the other side has ended its items.
        var hasInputEnded: Bool
        /// Whether this side has ended its items.
        var hasOutputEnded: Bool
        /// Whether further items are dropped.
        var dropsItems = false
        var isOver = false
        /// The items that the application has not taken.
        var untaken = ItemReceipt()
        var lastMoved: NIODeadline
        var alarm: TimerTable<StreamID>.ID?
        var hasMoved = false
        var hasLeft = false

        /// The lane for the items of this side; nil once it sends no more items.
        var sendingLane: SlotKey? { self.isOver || self.hasOutputEnded ? nil : self.lane }

        mutating func moved(_ now: NIODeadline) {
            self.hasMoved = true
            self.lastMoved = now
        }

        /// Records a received frame of an item.
        mutating func received(_ cost: UInt64, now: NIODeadline) {
            _ = self.window.receive(cost)
            self.moved(now)
        }

        /// Records an item that arrived whole in one frame, like most.
        ///
        /// - Parameters:
        ///   - role: The role of this side.
        ///   - flags: The flags that hello agreed on.
        /// - Returns: The credit that is due; nil if the frame cannot simply be delivered.
        mutating func receiveWhole(
            _ type: UInt32,
            _ receipt: ItemReceipt,
            role: Role,
            flags: UInt32,
            now: NIODeadline
        ) -> (lane: SlotKey, credit: UInt64?)? {
            guard type & FrameType.continuesFlag == 0, self.assembly == nil, !self.dropsItems,
                self.objection(toType: type, cost: receipt.cost, role: role, flags: flags) == nil
            else { return nil }
            self.received(receipt.cost, now: now)
            self.untaken += receipt
            return (self.lane, self.dueGrant(now))
        }

        /// The credit that is due for it; nil if none is.
        mutating func dueGrant(_ now: NIODeadline) -> UInt64? {
            guard !self.isOver, !self.hasInputEnded, let credit = self.window.grant() else { return nil }
            self.lastMoved = now
            return credit
        }

        /// The credit with which its window is as wide as this; nil if that grants nothing.
        mutating func widen(to window: UInt64) -> UInt64? {
            self.isOver || self.hasInputEnded ? nil : self.window.widen(to: window)
        }

        /// The fault of an item, other than its length, that ends the stream; nil if there is none.
        ///
        /// - Parameters:
        ///   - role: The role of this side.
        ///   - flags: The flags that hello agreed on.
        func objection(toType type: UInt32, cost: UInt64, role: Role, flags: UInt32) -> StreamOutcome? {
            let sends = role == .server ? self.kind.clientStreams : self.kind.serverStreams
            guard sends else { return .violated(.unexpectedItem) }
            guard !self.hasInputEnded else { return .violated(.itemAfterEnd) }
            guard type & FrameType.metadataFlag == 0 else { return .violated(.metadataOnItem) }
            guard type & FrameType.allFlags & ~(flags | FrameType.continuesFlag) == 0 else {
                return .violated(.flagNotAgreed)
            }
            guard cost <= self.window.granted.subtracting(self.window.received) else {
                return .violated(.beyondWindow)
            }
            return nil
        }
    }

    let role: Role
    private(set) var settings: StreamSettings
    var scheduler: StreamScheduler
    /// The window of the other side's items on all streams.
    var connection: ReceiveWindow
    var streams = SlotTable<Stream>()
    /// The streams that are open, by serial.
    private(set) var open: [UInt32: SlotKey] = [:]
    /// The stream that was found last.
    private var lastFound: (serial: UInt32, key: SlotKey)?
    var assembler: PayloadAssembler
    var timers = TimerTable<StreamID>()
    /// The cost of the frames of items and answers that are held.
    private(set) var heldOfStreams: UInt64 = 0
    /// The memory of the incomplete payloads of streams, and of items that were not taken.
    private var memoryOfStreams: UInt64 = 0
    /// The number of streams with an incomplete payload.
    private var unfinishedCount = 0
    var actions: Deque<StreamAction> = []
    /// Whether the connection has ended.
    private(set) var isClosed = false
    /// The number of unproductive frames since it was last read.
    var unproductiveFrames = 0
    /// The cost of items that the other side may have sent on streams before it knew that they were over.
    private var lateCredit: UInt64 = 0

    init(_ role: Role, _ settings: StreamSettings) {
        self.role = role
        self.settings = settings
        let (mine, theirs) =
            role == .client
            ? (settings.terms.client, settings.terms.server) : (settings.terms.server, settings.terms.client)
        self.scheduler = StreamScheduler(
            connectionWindow: theirs.connection,
            maximumQueuedBytes: settings.maximumQueuedBytes
        )
        self.connection = ReceiveWindow(mine.connection)
        self.assembler = PayloadAssembler(
            maximumLength: settings.maximumPayloadLength,
            maximumCount: settings.maximumUnfinished
        )
    }

    /// Sets the limits of payloads and of received bytes, and the flags, from now on; received payloads stay.
    mutating func accept(payloadsUpTo length: Int, holding bytes: Int, flags: UInt32) {
        self.settings.flags = flags
        self.settings.maximumPayloadLength = length
        self.settings.maximumHeldBytes = bytes
        self.assembler.maximumLength = length
    }

    private var myWindow: UInt32 {
        self.role == .client ? self.settings.terms.client.stream : self.settings.terms.server.stream
    }
    private var theirWindow: UInt32 {
        self.role == .client ? self.settings.terms.server.stream : self.settings.terms.client.stream
    }

    /// The number of streams that are open.
    var openCount: Int { self.open.count }
    /// The cost of the frames that were received and are held.
    var heldBytes: UInt64 { self.heldOfStreams + self.assembler.heldBytes }
    /// The memory of what was received and is held, in bytes.
    var heldMemory: UInt64 { self.memoryOfStreams + self.assembler.memory }
    /// Whether there is an incomplete payload.
    var hasUnfinished: Bool { self.unfinishedCount > 0 || self.assembler.isGathering }
    /// The number of slots that waiting payloads occupy, including stubs.
    var occupiedSlots: Int { self.scheduler.occupiedSlots + self.timers.occupiedSlots }
    private var maximumHeld: UInt64 { UInt64(max(0, self.settings.maximumHeldBytes)) }

    mutating func find(_ serial: UInt32) -> SlotKey? {
        if let last = self.lastFound, last.serial == serial { return last.key }
        guard !self.open.isEmpty, let key = self.open[serial] else { return nil }
        self.lastFound = (serial, key)
        return key
    }

    /// The open stream with this serial.
    func stream(of serial: UInt32) -> StreamID? {
        if let last = self.lastFound, last.serial == serial { return StreamID(key: last.key) }
        return self.open.isEmpty ? nil : self.open[serial].map { StreamID(key: $0) }
    }

    // MARK: Opening and ending

    mutating func enter(
        type: UInt32,
        serial: UInt32,
        kind: StreamKind,
        priority: FramePriority,
        now: NIODeadline
    ) -> StreamID {
        let lane = self.scheduler.open(nil, serial: serial, priority: priority, window: self.theirWindow)
        let isClient = self.role == .client
        let stream = Stream(
            serial: serial,
            type: type,
            kind: kind,
            lane: lane,
            window: ReceiveWindow(self.myWindow),
            hasInputEnded: isClient ? false : !kind.clientStreams,
            hasOutputEnded: isClient ? !kind.clientStreams : false,
            lastMoved: now
        )
        let key = self.streams.insert(stream)
        let id = StreamID(key: key)
        self.scheduler.assign(id, to: lane)
        self.open[serial] = key
        self.lastFound = nil
        self.setAlarm(key, now)
        return id
    }

    /// Ends a stream.
    mutating func finish(_ key: SlotKey, _ outcome: StreamOutcome, answer: Frame? = nil) {
        guard let stream = self.streams[key], !stream.isOver else { return }
        self.open[stream.serial] = nil
        self.lastFound = nil
        self.scheduler.close(stream.lane)
        if let alarm = stream.alarm { self.timers.remove(alarm) }
        self.dropAssembly(key)
        if !self.isAnswering(key) { self.noteLate(stream) }
        self.streams.with(key) {
            $0.isOver = true
            $0.alarm = nil
        }
        let end = StreamEnd(outcome: outcome, answer: answer, hasMoved: stream.hasMoved, hasLeft: stream.hasLeft)
        self.actions.append(.ended(StreamID(key: key), end))
        // At a client, items that arrived before the end belong to the application.
        if self.role == .server || outcome == .cancelled || outcome == .connectionLost {
            self.release(key)
        } else {
            self.removeIfDone(key)
        }
    }

    /// Ends a stream that cannot continue, and notifies the other side.
    mutating func fail(_ key: SlotKey, _ outcome: StreamOutcome) {
        guard let stream = self.streams[key], !stream.isOver else { return }
        switch self.role {
        case .client:
            if stream.hasLeft { self.sendCancel(stream.serial) }
        case .server:
            let answer = LanePayload(type: stream.type, status: outcome.status ?? .unknown, kind: .last)
            guard self.scheduler.conclude(stream.lane, with: answer) else { return }
        }
        self.finish(key, outcome)
    }

    func cancelFrame(_ serial: UInt32) -> Frame? { self.settings.format.cancel(serial: serial) }

    mutating func sendCancel(_ serial: UInt32) {
        if let frame = self.cancelFrame(serial) { self.scheduler.sendCancel(frame) }
    }

    private mutating func removeIfDone(_ key: SlotKey) {
        guard self.streams[key]?.isOver ?? false, self.streams[key]?.untaken == ItemReceipt() else { return }
        self.streams.remove(key)
        _ = self.streams.releaseMemory(keeping: StreamScheduler.slotsKept)
    }

    /// The bytes are invalid in a way that requires ending the connection.
    mutating func fault(_ fault: StreamFault) {
        guard !self.isClosed else { return }
        self.isClosed = true
        self.actions.append(.close(fault))
    }

    /// The connection was lost: all streams end.
    mutating func connectionLost() {
        self.isClosed = true
        for (_, key) in self.open.sorted(by: { $0.key < $1.key }) { self.finish(key, .connectionLost) }
        self.scheduler.removeAll()
        self.assembler.removeAll()
    }

    // MARK: Sending

    /// Sends an item. The application may send the next one if the result allows it, or after the action to continue.
    mutating func send(_ id: StreamID, type: UInt32, status: Status, _ payload: ByteBuffer) -> SendResult {
        guard let lane = self.streams.with(id.key, { $0.sendingLane }) ?? nil else { return .over }
        let item = LanePayload(type: type, status: status, kind: .item, bytes: payload)
        return self.scheduler.send(item, on: lane) ? .proceed : .wait
    }

    /// The next frame to send.
    mutating func next(now: NIODeadline) -> Frame? {
        guard !self.isClosed else { return nil }
        // Also if no frame is sent: a lane that was set aside has made room for others.
        defer { self.unblockSenders() }
        guard let departure = self.scheduler.next() else { return nil }
        if let key = departure.stream?.key, let kind = departure.kind {
            switch kind {
            case .free: self.streams.with(key) { $0.hasLeft = true }
            case .item: self.streams.with(key) { $0.moved(now) }
            case .end: break
            case .last: if departure.isWhole { self.finish(key, .answered(departure.frame.status)) }
            }
        }
        return departure.frame
    }

    /// Notifies senders that waited that they may continue.
    mutating func unblockSenders() {
        guard self.scheduler.hasUnblocked else { return }
        for id in self.scheduler.takeUnblocked() where self.streams[id.key].map({ !$0.isOver }) ?? false {
            self.actions.append(.unblock(id))
        }
    }

    // MARK: Credit

    mutating func receivedCredit(_ frame: borrowing ArrivedFrame, now: NIODeadline) {
        guard let credit = StreamFrames.credit(in: frame.payload.buffer) else {
            self.unproductiveFrames += 1
            return
        }
        if frame.serial == FrameSerial.connectionCredit {
            if !self.scheduler.grantConnection(credit) { self.unproductiveFrames += 1 }
        } else if let key = self.find(frame.serial), let lane = self.streams[key]?.lane,
            self.scheduler.grant(credit, to: lane)
        {
            self.streams.with(key) { $0.lastMoved = now }
        } else {
            self.unproductiveFrames += 1
        }
        self.unblockSenders()
    }

    private mutating func grantConnection() {
        if let credit = self.connection.grant() { self.scheduler.sendConnectionCredit(credit) }
    }

    private mutating func grant(_ key: SlotKey, now: NIODeadline) {
        guard let due = self.streams.with(key, { ($0.dueGrant(now), $0.lane) }), let credit = due.0 else { return }
        self.scheduler.sendCredit(credit, of: due.1)
    }

    /// Grants more on a stream than hello announced, for one with many items. The window never shrinks.
    mutating func widen(_ id: StreamID, to window: UInt64) {
        guard let due = self.streams.with(id.key, { ($0.widen(to: window), $0.lane) }), let credit = due.0 else {
            return
        }
        self.scheduler.sendCredit(credit, of: due.1)
    }

    // MARK: Items

    /// Handles a frame of an item, of any stream.
    mutating func receivedItem(_ frame: borrowing ArrivedFrame, isDamaged: Bool, now: NIODeadline) {
        let cost = StreamFrames.cost(frame.length)
        guard self.connection.receive(cost) else { return self.fault(.beyondWindow) }
        guard let key = self.find(frame.serial), !self.isAnswering(key) else {
            if cost <= self.lateCredit { self.lateCredit -= cost } else { self.unproductiveFrames += 1 }
            return self.dropOnConnection(cost)
        }
        if !isDamaged, self.limitBroken(by: frame, nil) == nil,
            self.receiveWhole(frame, of: key, cost: cost, now: now)
        {
            return
        }
        if let outcome = self.objection(to: frame, of: key, isDamaged: isDamaged, cost) {
            self.dropOnConnection(cost)
            return self.fail(key, outcome)
        }
        self.streams.with(key) { $0.received(cost, now: now) }
        self.heldOfStreams += cost
        if frame.type & FrameType.continuesFlag != 0 {
            self.gather(frame, key)
            self.streams.with(key) { $0.window.take(cost) }
            self.connection.take(cost)
        } else {
            self.deliver(frame, of: key, cost: cost, now: now)
        }
        self.grant(key, now: now)
        self.grantConnection()
    }

    /// Delivers an item in one frame, if it has no fault.
    private mutating func receiveWhole(
        _ frame: borrowing ArrivedFrame,
        of key: SlotKey,
        cost: UInt64,
        now: NIODeadline
    ) -> Bool {
        let (type, role, flags) = (frame.type, self.role, self.settings.flags)
        let receipt = ItemReceipt(cost: cost, lastCost: cost, frame.payload.buffer)
        guard
            let taken = self.streams.with(key, { $0.receiveWhole(type, receipt, role: role, flags: flags, now: now) })
                ?? nil
        else {
            return false
        }
        self.heldOfStreams += cost
        self.memoryOfStreams += receipt.memory
        self.hand(frame.payload.buffer, type: type, of: key, receipt: receipt)
        if let credit = taken.credit { self.scheduler.sendCredit(credit, of: taken.lane) }
        self.grantConnection()
        return true
    }

    /// Items of a stream are of no use from now on, though the other side may have sent some.
    private mutating func noteLate(_ stream: Stream) {
        guard !stream.hasInputEnded else { return }
        self.lateCredit = self.lateCredit.adding(stream.window.granted.subtracting(stream.window.received))
    }

    /// Whether a server has answered, so that items are of no use.
    private mutating func isAnswering(_ key: SlotKey) -> Bool {
        self.role == .server && self.streams.with(key, { $0.hasOutputEnded }) ?? true
    }

    /// The fault of an item that ends its stream; nil if there is none.
    private func objection(to frame: borrowing ArrivedFrame, of key: SlotKey, isDamaged: Bool, _ cost: UInt64)
        -> StreamOutcome?
    {
        guard self.streams.contains(key) else { return nil }
        if isDamaged { return .damaged }
        if let outcome = self.streams[key]?.objection(
            toType: frame.type,
            cost: cost,
            role: self.role,
            flags: self.settings.flags
        ) {
            return outcome
        }
        return self.limitBroken(by: frame, self.streams[key]?.assembly)
    }

    /// The limit that a piece of a stream's payload exceeds; nil if there is none.
    private func limitBroken(by frame: borrowing ArrivedFrame, _ assembly: PieceAssembly?) -> StreamOutcome? {
        let length = frame.length
        if let assembly {
            guard assembly.matches(frame) else { return .violated(.differentPieces) }
            guard assembly.fits(length, limit: self.settings.maximumPayloadLength) else { return .tooLong }
        } else if length > self.settings.maximumPayloadLength {
            return .tooLong
        }
        return self.heldBytes.adding(StreamFrames.cost(length)) > self.maximumHeld ? .tooMuchHeld : nil
    }

    private mutating func gather(_ frame: borrowing ArrivedFrame, _ key: SlotKey) {
        guard self.streams.contains(key) else { return }
        // Taken out, so that it grows in place.
        var assembly = self.streams.with(key) { $0.assembly.take() } ?? nil
        if assembly == nil {
            self.unfinishedCount += 1
            assembly = PieceAssembly(frame)
        } else {
            self.memoryOfStreams -= assembly?.memory ?? 0
            assembly?.append(frame)
        }
        self.memoryOfStreams += assembly?.memory ?? 0
        self.streams.with(key) { [assembly] in $0.assembly = assembly }
    }

    /// Delivers a complete item.
    private mutating func deliver(_ frame: borrowing ArrivedFrame, of key: SlotKey, cost: UInt64, now: NIODeadline) {
        var payload = frame.payload.buffer
        var total = cost
        if var assembly = self.takeAssembly(key) {
            self.streams.with(key) { $0.window.putBack(assembly.cost) }
            total = cost.adding(assembly.cost)
            assembly.append(frame)
            payload = assembly.bytes.buffer
        }
        let receipt = ItemReceipt(cost: total, lastCost: cost, payload)
        self.streams.with(key) { $0.untaken += receipt }
        self.memoryOfStreams += receipt.memory
        if self.streams[key]?.dropsItems ?? true {
            self.take(key, receipt)
        } else {
            self.hand(payload, type: frame.type, of: key, receipt: receipt)
        }
    }

    private mutating func hand(_ payload: ByteBuffer, type: UInt32, of key: SlotKey, receipt: ItemReceipt) {
        let isCompressed = type & FrameType.compressionFlag != 0
        let item = StreamItem(payload: payload, isCompressed: isCompressed, receipt: receipt)
        self.actions.append(.item(StreamID(key: key), item))
    }

    /// Drops a frame: it counts as sent, and at once as taken.
    mutating func dropOnConnection(_ cost: UInt64) {
        self.connection.take(cost)
        self.grantConnection()
    }

    private mutating func dropAssembly(_ key: SlotKey) {
        guard let assembly = self.takeAssembly(key) else { return }
        self.heldOfStreams -= assembly.cost
    }

    private mutating func takeAssembly(_ key: SlotKey) -> PieceAssembly? {
        guard let assembly = self.streams.with(key, { $0.assembly.take() }) ?? nil else { return nil }
        self.unfinishedCount -= 1
        self.memoryOfStreams -= assembly.memory
        return assembly
    }

    private mutating func take(_ key: SlotKey, _ receipt: ItemReceipt) {
        let taken = self.streams.with(key) { stream in
            let taken = stream.untaken.remove(receipt)
            stream.window.take(taken.cost)
            return taken
        }
        guard let taken else { return }
        self.connection.take(taken.lastCost)
        self.heldOfStreams -= taken.cost
        self.memoryOfStreams -= taken.memory
    }

    /// Records that the application has taken items.
    mutating func took(_ id: StreamID, _ receipt: ItemReceipt, now: NIODeadline) {
        guard self.streams.contains(id.key) else { return }
        self.take(id.key, receipt)
        self.streams.with(id.key) { $0.lastMoved = now }
        self.grant(id.key, now: now)
        self.grantConnection()
        self.removeIfDone(id.key)
    }

    /// The application takes no more items of a stream.
    mutating func release(_ key: SlotKey) {
        guard let untaken = self.streams[key]?.untaken else { return }
        self.take(key, untaken)
        self.streams.with(key) { $0.dropsItems = true }
        self.grantConnection()
        self.removeIfDone(key)
    }

    // MARK: The server's answer

    /// At a server: sends the application's answer.
    mutating func answer(_ id: StreamID, _ payload: LanePayload) {
        guard let stream = self.streams[id.key], !stream.isOver, !stream.hasOutputEnded else { return }
        self.noteLate(stream)
        self.streams.with(id.key) { $0.hasOutputEnded = true }
        self.dropAssembly(id.key)
        self.release(id.key)
        self.scheduler.append(payload, to: stream.lane)
    }

    /// At a client: handles a frame of the final answer.
    mutating func receivedAnswer(_ frame: borrowing ArrivedFrame, of key: SlotKey, isDamaged: Bool, now: NIODeadline) {
        guard let stream = self.streams[key] else { return }
        let continues = frame.type & FrameType.continuesFlag != 0
        if isDamaged {
            if continues { return self.fail(key, .damaged) }
            return self.conclude(key, .damaged)
        }
        // An answer in the middle of an item ends the stream, and the half is dropped.
        if let assembly = stream.assembly, assembly.status == .partial { self.dropAssembly(key) }
        if let outcome = self.limitBroken(by: frame, self.streams[key]?.assembly) { return self.fail(key, outcome) }
        self.streams.with(key) { $0.lastMoved = now }
        guard continues else {
            var whole = frame.kept()
            if var assembly = self.takeAssembly(key) {
                self.heldOfStreams -= assembly.cost
                assembly.append(frame)
                whole.payload = assembly.bytes.buffer
            }
            return self.conclude(key, .answered(frame.status), answer: whole)
        }
        self.heldOfStreams += StreamFrames.cost(frame.length)
        self.gather(frame, key)
        self.streams.with(key) { ($0.hasOutputEnded, $0.hasInputEnded) = (true, true) }
        self.stopSending(key)
    }

    /// Ends a stream which the server has ended.
    private mutating func conclude(_ key: SlotKey, _ outcome: StreamOutcome, answer: Frame? = nil) {
        self.stopSending(key)
        self.finish(key, outcome, answer: answer)
    }

    /// Drops waiting payloads. A server without the whole opening waits for its last piece or a cancel.
    private mutating func stopSending(_ key: SlotKey) {
        guard let stream = self.streams[key] else { return }
        if self.scheduler.silence(stream.lane) == .free { self.sendCancel(stream.serial) }
        self.unblockSenders()
    }

    // MARK: Time

    private mutating func setAlarm(_ key: SlotKey, _ from: NIODeadline) {
        guard let limit = self.settings.idleLimit else { return }
        let alarm = self.timers.set(from + limit, StreamID(key: key))
        self.streams.with(key) { $0.alarm = alarm }
    }

    /// The time by which ``timePassed(now:)`` must be called, at the latest.
    var nextDeadline: NIODeadline? { self.timers.nextDeadline }

    /// Whether there is no stream, no incomplete payload, and nothing to send or to do.
    var isQuiet: Bool {
        self.streams.count == 0 && self.assembler.isEmpty && self.actions.isEmpty && self.scheduler.isQuiet
    }

    /// Ends the streams that have not moved for too long.
    mutating func timePassed(now: NIODeadline) {
        guard let limit = self.settings.idleLimit else { return }
        while let id = self.timers.popDue(now: now) {
            guard let stream = self.streams[id.key], !stream.isOver else { continue }
            self.streams.with(id.key) { $0.alarm = nil }
            if stream.lastMoved + limit > now {
                self.setAlarm(id.key, stream.lastMoved)
            } else {
                self.fail(id.key, .idle)
                // An answer whose sending has begun is already the end.
                if self.streams[id.key].map({ !$0.isOver }) ?? false { self.setAlarm(id.key, now) }
            }
        }
        self.unblockSenders()
    }

    // MARK: Payloads in pieces

    /// Handles a piece of a payload that belongs to no stream.
    mutating func receivedPiece(_ frame: borrowing ArrivedFrame, isDamaged: Bool) {
        let limit = self.maximumHeld.subtracting(self.heldOfStreams)
        switch self.assembler.receive(frame, isDamaged: isDamaged, limit: limit) {
        case .more: break
        case .whole(let whole): self.actions.append(.whole(whole))
        case .failed(let failure):
            let type = frame.type & ~FrameType.allFlags
            if self.role == .server {
                self.scheduler.sendPlain(
                    LanePayload(type: type, status: failure.status, kind: .free),
                    serial: frame.serial
                )
            }
            self.actions.append(.failed(type: type, serial: frame.serial, failure))
        case .overflow: self.fault(.tooManyUnfinished)
        }
    }
}

/// Whether a sender may send its next item.
package enum SendResult: Hashable, Sendable {
    case proceed
    /// Wait until ``StreamAction/unblock(_:)``.
    case wait
    /// This stream sends no more items; the item was dropped.
    case over
}
