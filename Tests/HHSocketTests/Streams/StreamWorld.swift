// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import NIOCore
import TestSupport

/// The output of the machines in transit to the other side: bytes, which arrive in order, in the pieces of the script;
/// at most as many are in transit as a socket holds.
struct StreamPipe {
    private let encoder: FrameEncoder
    private var decoder: FrameDecoder
    private var bytes = ByteBuffer()

    init(_ direction: FrameDirection) {
        self.encoder = FrameEncoder(direction: direction)
        self.decoder = FrameDecoder(direction: direction)
        self.decoder.agreedFlags = FrameType.allFlags
    }

    var underWay: Int { self.bytes.readableBytes }

    /// - Parameter isDamaged: Whether its last byte is changed in transit.
    mutating func send(_ frame: Frame, isDamaged: Bool = false) {
        self.encoder.encode(frame, into: &self.bytes)
        guard isDamaged, let last = self.bytes.getInteger(at: self.bytes.writerIndex - 1, as: UInt8.self) else {
            return
        }
        self.bytes.setInteger(~last, at: self.bytes.writerIndex - 1)
    }

    /// Returns the frames that are complete once `count` more bytes have arrived.
    mutating func arrive(_ count: Int) throws -> [(frame: Frame, isDamaged: Bool)] {
        let arrived = self.bytes.readSlice(length: min(count, self.bytes.readableBytes)) ?? ByteBuffer()
        self.bytes.discardReadBytes()
        self.decoder.append(arrived)
        var frames: [(Frame, Bool)] = []
        while let output = try self.decoder.next() {
            switch output {
            case .frame(let frame): frames.append((frame, false))
            case .corrupt(let frame, _): frames.append((frame, true))
            case .malformed: throw Broken("bytes that are no frame")
            }
        }
        return frames
    }
}

/// A promise that was broken.
struct Broken: Error, CustomStringConvertible {
    var description: String

    init(_ description: String) { self.description = description }
}

/// A fault of the world, which its checks must detect.
enum StreamFlaw: CaseIterable, Hashable {
    case dropsItem, doublesItem, swapsItems, dropsPiece
    case grantsTwice, losesCredits, keepsTaken
    case ignoresConnectionWindow, ignoresStreamWindow
    case endPassesItem, answerPassesItem, dropsCancel
}

/// The externally visible state of one direction of a stream.
struct ItemFlow {
    /// The lengths of the accepted items, in order.
    var accepted: [Int] = []
    /// The number of items that have arrived.
    var arrived = 0
    /// The items that the application has not taken.
    var inbox: Deque<StreamItem> = []
    var maySend = true
    /// The cost of the frames of its items so far.
    var sent: UInt64 = 0
    /// The widest window of its receiver.
    var window: UInt64
    /// The largest credit that the sender has received.
    var credit: UInt64

    init(_ window: UInt64) {
        self.window = window
        self.credit = window
    }
}

/// A stream as both applications see it.
struct ObservedStream {
    var serial: UInt32
    var kind: StreamKind
    var client: StreamID
    var server: StreamID?
    var up: ItemFlow
    var down: ItemFlow
    var hasFinished = false
    var hasAnswered = false
    var clientEnd: StreamEnd?
    var serverEnd: StreamEnd?
}

/// A client and a server with a pipe between them, and their expected behaviour.
struct StreamWorld: ~Copyable {
    static let type: UInt32 = 1_000
    static let plainType: UInt32 = 2_000
    static let pushType: UInt32 = 3_000
    static let finalLength = 300

    let terms: StreamTerms
    let flaw: StreamFlaw?
    let socketBuffer: Int
    var client: ClientStreams
    var server: ServerStreams
    var up = StreamPipe(.request)
    var down = StreamPipe(.response)
    var now = NIODeadline.uptimeNanoseconds(1_000_000_000)
    var streams: [ObservedStream] = []
    /// The streams by serial, which is unique within a history.
    var bySerial: [UInt32: Int] = [:]
    var nextSerial: UInt32 = 50
    var calls: [UInt32: Int] = [:]
    var pushes: Deque<Int> = []
    var upSent: UInt64 = 0
    var downSent: UInt64 = 0
    var upCredit: UInt64
    var downCredit: UInt64
    var isHalfClosed = false
    var hasServerSeenHalfClose = false
    var isLost = false
    /// Whether the next frame of an item is damaged in transit.
    var damagesNext = (up: false, down: false)
    /// The streams of which a frame was damaged.
    var damaged: Set<UInt32> = []
    var flawsMade = 0
    private var heldBack: [Frame] = []

    init(_ terms: StreamTerms, socketBuffer: Int, flaw: StreamFlaw? = nil) {
        self.terms = terms
        self.flaw = flaw
        self.socketBuffer = socketBuffer
        var settings = StreamSettings(terms: terms)
        settings.maximumQueuedBytes = 100_000
        self.server = ServerStreams(settings)
        if flaw == .ignoresConnectionWindow { settings.terms.server.connection = .max }
        if flaw == .ignoresStreamWindow { settings.terms.server.stream = .max }
        self.client = ClientStreams(settings)
        self.upCredit = UInt64(terms.server.connection)
        self.downCredit = UInt64(terms.client.connection)
    }

    // MARK: Contents

    private static let pool: ByteBuffer = {
        var generator = SeededGenerator(seed: 7)
        return ByteBuffer(bytes: generator.bytes(400_000))
    }()

    /// The item with this number, equal for each call.
    static func item(_ serial: UInt32, _ number: Int, isUp: Bool, _ length: Int) -> ByteBuffer {
        let start = (Int(serial) * 7 + number * 31 + (isUp ? 3 : 0)) % 8_192
        return self.pool.getSlice(at: start, length: length) ?? ByteBuffer()
    }

    // MARK: Steps

    mutating func open(_ kind: StreamKind, _ priority: FramePriority, openingLength: Int) {
        guard !self.isLost, !self.isHalfClosed, self.client.canOpen else { return }
        let serial = self.nextSerial
        self.nextSerial += 1
        let opening = kind.clientStreams ? ByteBuffer() : Self.item(serial, 0, isUp: true, openingLength)
        let id = self.client.open(
            type: Self.type + UInt32(kind.clientStreams ? 1 : 0) + UInt32(kind.serverStreams ? 2 : 0),
            serial: serial,
            payload: opening,
            kind: kind,
            priority: priority,
            now: self.now
        )
        self.bySerial[serial] = self.streams.count
        self.streams.append(
            ObservedStream(
                serial: serial,
                kind: kind,
                client: id,
                up: ItemFlow(UInt64(self.terms.server.stream)),
                down: ItemFlow(UInt64(self.terms.client.stream))
            )
        )
    }

    mutating func send(_ index: Int, length: Int, isUp: Bool) throws {
        guard self.streams.indices.contains(index) else { return }
        let stream = self.streams[index]
        if isUp {
            guard stream.kind.clientStreams, !stream.hasFinished, stream.clientEnd == nil, stream.up.maySend else {
                return
            }
            let item = Self.item(stream.serial, stream.up.accepted.count, isUp: true, length)
            switch self.client.send(stream.client, item) {
            case .proceed: self.streams[index].up.accepted.append(length)
            case .wait:
                self.streams[index].up.accepted.append(length)
                self.streams[index].up.maySend = false
            case .over:
                // A part of the answer has arrived.
                self.streams[index].up.maySend = false
            }
        } else {
            guard stream.kind.serverStreams, !stream.hasAnswered, stream.serverEnd == nil, stream.down.maySend,
                let id = stream.server
            else { return }
            let item = Self.item(stream.serial, stream.down.accepted.count, isUp: false, length)
            switch self.server.send(id, item) {
            case .proceed: self.streams[index].down.accepted.append(length)
            case .wait:
                self.streams[index].down.accepted.append(length)
                self.streams[index].down.maySend = false
            case .over: throw Broken("\(stream.serial): a server's item is refused")
            }
        }
    }

    mutating func finish(_ index: Int) {
        guard self.streams.indices.contains(index), self.streams[index].clientEnd == nil else { return }
        self.client.finish(self.streams[index].client)
        self.streams[index].hasFinished = true
    }

    mutating func answer(_ index: Int, length: Int) {
        guard self.streams.indices.contains(index), let id = self.streams[index].server,
            self.streams[index].serverEnd == nil, !self.streams[index].hasAnswered
        else { return }
        let serial = self.streams[index].serial
        self.server.answer(id, payload: Self.item(serial, -1, isUp: false, length))
        self.streams[index].hasAnswered = true
        self.streams[index].up.inbox = []
    }

    mutating func cancel(_ index: Int) throws {
        guard self.streams.indices.contains(index), self.streams[index].clientEnd == nil else { return }
        self.client.cancel(self.streams[index].client)
        self.streams[index].down.inbox = []
        try self.performClient()
    }

    mutating func call(length: Int) {
        guard !self.isLost, !self.isHalfClosed else { return }
        let serial = self.nextSerial
        self.nextSerial += 1
        self.calls[serial] = length
        let body = Self.item(serial, 0, isUp: true, length)
        self.client.sendPlain(type: Self.plainType, serial: serial, payload: body)
    }

    mutating func push(length: Int) {
        guard !self.isLost else { return }
        self.pushes.append(length)
        self.server.sendPlain(
            type: Self.pushType,
            serial: FrameSerial.push,
            status: .ok,
            payload: Self.item(1, 0, isUp: false, length)
        )
    }

    /// Gives the application up to `count` items.
    ///
    /// - Returns: The number of items.
    @discardableResult
    mutating func take(_ index: Int, _ count: Int, isUp: Bool) -> Int {
        guard self.streams.indices.contains(index) else { return 0 }
        var (receipt, taken) = (ItemReceipt(), 0)
        func pop(_ inbox: inout Deque<StreamItem>) {
            while taken < count, let item = inbox.popFirst() {
                receipt += item.receipt
                taken += 1
            }
        }
        if isUp { pop(&self.streams[index].up.inbox) } else { pop(&self.streams[index].down.inbox) }
        guard taken > 0 else { return 0 }
        if self.flaw == .keepsTaken, self.flawsMade == 0 {
            self.flawsMade += 1
            return taken
        }
        if isUp {
            if let id = self.streams[index].server { self.server.took(id, receipt, now: self.now) }
        } else {
            self.client.took(self.streams[index].client, receipt, now: self.now)
        }
        return taken
    }

    /// Widens the window of a stream's receiver.
    mutating func widen(_ index: Int, to window: UInt32, isUp: Bool) {
        guard self.streams.indices.contains(index) else { return }
        let window = UInt64(window)
        if isUp {
            guard let id = self.streams[index].server else { return }
            self.streams[index].up.window = max(self.streams[index].up.window, window)
            self.server.widen(id, to: window)
        } else {
            self.streams[index].down.window = max(self.streams[index].down.window, window)
            self.client.widen(self.streams[index].client, to: window)
        }
    }

    mutating func pass(_ time: TimeAmount) throws {
        self.now = self.now + time
        if let deadline = self.client.nextDeadline, deadline <= self.now { self.client.timePassed(now: self.now) }
        if let deadline = self.server.nextDeadline, deadline <= self.now { self.server.timePassed(now: self.now) }
        try self.performClient()
        try self.performServer()
    }

    mutating func endPatience() throws {
        self.server.endPatience()
        try self.performServer()
    }

    mutating func lose() throws {
        guard !self.isLost else { return }
        self.isLost = true
        self.client.connectionLost()
        self.server.connectionLost()
        self.calls = [:]
        self.pushes = []
        try self.performClient()
        try self.performServer()
    }

    // MARK: Frames

    /// Gives the socket up to `count` frames, while it takes them.
    @discardableResult
    mutating func pump(_ count: Int, isUp: Bool) throws -> Int {
        guard !self.isLost, !(isUp && self.isHalfClosed) else { return 0 }
        var sent = 0
        while sent < count, (isUp ? self.up : self.down).underWay < self.socketBuffer {
            guard let frame = isUp ? self.client.next(now: self.now) : self.server.next(now: self.now) else { break }
            sent += 1
            for flawed in self.flawed(frame, isUp: isUp) {
                try self.watch(flawed, isUp: isUp)
                let isDamaged = self.isDamaged(flawed, isUp: isUp)
                if isUp {
                    self.up.send(flawed, isDamaged: isDamaged)
                } else {
                    self.down.send(flawed, isDamaged: isDamaged)
                }
            }
        }
        if isUp { try self.performClient() } else { try self.performServer() }
        return sent
    }

    /// Whether this is the frame of an item that is damaged in transit.
    private mutating func isDamaged(_ frame: Frame, isUp: Bool) -> Bool {
        guard isUp ? self.damagesNext.up : self.damagesNext.down,
            isUp ? frame.type & ~FrameType.allFlags == FrameType.item : frame.status == .partial
        else { return false }
        if isUp { self.damagesNext.up = false } else { self.damagesNext.down = false }
        self.damaged.insert(frame.serial)
        return true
    }

    /// The frames that are sent in place of a frame.
    private mutating func flawed(_ frame: Frame, isUp: Bool) -> [Frame] {
        guard let flaw = self.flaw else { return [frame] }
        let type = frame.type & ~FrameType.allFlags
        let isItem = isUp ? type == FrameType.item : frame.status == .partial
        let continues = frame.type & FrameType.continuesFlag != 0
        switch flaw {
        case .dropsItem where isItem && !continues && self.flawsMade == 0:
            self.flawsMade += 1
            return []
        case .dropsPiece where isItem && continues && frame.payload.readableBytes > 0 && self.flawsMade == 0:
            self.flawsMade += 1
            return []
        case .doublesItem where isItem && !continues && self.flawsMade == 0:
            self.flawsMade += 1
            return [frame, frame]
        case .swapsItems where isItem && !continues, .endPassesItem where isItem && !continues && isUp,
            .answerPassesItem where isItem && !continues && !isUp:
            // Held back until the next frame of its stream.
            guard self.heldBack.isEmpty, self.flawsMade == 0 else { return [frame] + self.takeHeldBack(frame.serial) }
            self.heldBack = [frame]
            return []
        case .losesCredits where type == FrameType.credit && frame.serial != 0:
            return []
        case .dropsCancel where type == FrameType.cancel:
            return []
        case .grantsTwice where type == FrameType.credit:
            guard let credit = frame.payload.getInteger(at: frame.payload.readerIndex, as: UInt64.self) else {
                return [frame]
            }
            return [StreamFrames.credit(serial: frame.serial, credit + 5_000)]
        default:
            return [frame] + self.takeHeldBack(frame.serial)
        }
    }

    private mutating func takeHeldBack(_ serial: UInt32) -> [Frame] {
        guard self.heldBack.first?.serial == serial else { return [] }
        defer { self.heldBack = [] }
        self.flawsMade += 1
        return self.heldBack
    }

    /// Checks a sent frame: no byte may be beyond a window.
    private mutating func watch(_ frame: Frame, isUp: Bool) throws {
        let type = frame.type & ~FrameType.allFlags
        guard isUp ? type == FrameType.item : frame.status == .partial else { return }
        guard let index = self.bySerial[frame.serial] else { throw Broken("an item of no stream") }
        guard frame.payload.readableBytes <= 65_536 else { throw Broken("an item was not cut") }
        let cost = UInt64(frame.payload.readableBytes) + 16
        if isUp {
            self.streams[index].up.sent += cost
            self.upSent += cost
        } else {
            self.streams[index].down.sent += cost
            self.downSent += cost
        }
        let flow = isUp ? self.streams[index].up : self.streams[index].down
        guard flow.sent <= flow.credit else { throw Broken("\(frame.serial): beyond the stream's window") }
        guard isUp ? self.upSent <= self.upCredit : self.downSent <= self.downCredit else {
            throw Broken("\(frame.serial): beyond the connection's window")
        }
    }

    /// Lets some bytes arrive.
    @discardableResult
    mutating func deliver(_ count: Int, isUp: Bool) throws -> Int {
        guard !self.isLost else { return 0 }
        let frames = isUp ? try self.up.arrive(count) : try self.down.arrive(count)
        for (frame, isDamaged) in frames {
            self.watchCredit(frame, isUp: isUp)
            if isUp {
                try self.serverReceives(frame, isDamaged: isDamaged)
            } else {
                try self.clientReceives(frame, isDamaged: isDamaged)
            }
            if isUp { try self.performServer() } else { try self.performClient() }
        }
        if isUp, self.isHalfClosed, !self.hasServerSeenHalfClose, self.up.underWay == 0 {
            self.hasServerSeenHalfClose = true
            self.server.inputClosed()
            try self.performServer()
        }
        return frames.count
    }

    private mutating func watchCredit(_ frame: Frame, isUp: Bool) {
        guard frame.type == FrameType.credit,
            let credit = frame.payload.getInteger(at: frame.payload.readerIndex, as: UInt64.self)
        else { return }
        // A client's credit is for items from the server.
        switch (frame.serial, isUp) {
        case (0, true): self.downCredit = max(self.downCredit, credit)
        case (0, false): self.upCredit = max(self.upCredit, credit)
        case (let serial, _):
            guard let index = self.bySerial[serial] else { return }
            if isUp {
                self.streams[index].down.credit = max(self.streams[index].down.credit, credit)
            } else {
                self.streams[index].up.credit = max(self.streams[index].up.credit, credit)
            }
        }
    }

    private mutating func serverReceives(_ frame: Frame, isDamaged: Bool) throws {
        if frame.type == FrameType.cancel {
            _ = self.server.cancelled(serial: frame.serial)
            return
        }
        guard !self.server.receive(ArrivedFrame(frame), isDamaged: isDamaged, now: self.now) else { return }
        try self.serverReceivesRequest(frame)
    }

    private mutating func serverReceivesRequest(_ frame: Frame) throws {
        if frame.type == Self.plainType {
            guard self.calls[frame.serial] == frame.payload.readableBytes else { throw Broken("an unknown call") }
            self.server.sendPlain(
                type: frame.type,
                serial: frame.serial,
                status: .ok,
                payload: frame.payload
            )
            return
        }
        guard let index = self.bySerial[frame.serial] else { throw Broken("an unknown request \(frame)") }
        let opening = self.server.open(
            type: frame.type,
            serial: frame.serial,
            kind: self.streams[index].kind,
            hasBody: frame.payload.readableBytes > 0,
            now: self.now
        )
        if case .opened(let id) = opening { self.streams[index].server = id }
    }

    private mutating func clientReceives(_ frame: Frame, isDamaged: Bool) throws {
        let isAwaited = frame.serial == FrameSerial.push || self.calls[frame.serial] != nil
        let arrived = ArrivedFrame(frame)
        guard !self.client.receive(arrived, isDamaged: isDamaged, isAwaited: isAwaited, now: self.now) else { return }
        try self.clientReceivesPlain(frame)
    }

    private mutating func clientReceivesPlain(_ frame: Frame) throws {
        if frame.serial == FrameSerial.push {
            guard let length = self.pushes.popFirst(), frame.type == Self.pushType,
                frame.payload == Self.item(1, 0, isUp: false, length)
            else { throw Broken("a push that was not sent: \(frame)") }
            return
        }
        // The answer to an opening that was dropped halfway, or to a stream that was cancelled.
        if self.bySerial[frame.serial] != nil { return }
        guard let length = self.calls.removeValue(forKey: frame.serial),
            frame.payload == Self.item(frame.serial, 0, isUp: true, length)
        else { throw Broken("an answer to nothing: \(frame)") }
    }

    // MARK: Actions

    private mutating func performClient() throws {
        var actions: [StreamAction] = []
        self.client.takeActions(into: &actions)
        for action in actions {
            switch action {
            case .item(let id, let item):
                try self.receivedItem(item, try self.index(id, isUp: false), isUp: false)
            case .unblock(let id):
                let index = try self.index(id, isUp: false)
                guard !self.streams[index].up.maySend else { throw Broken("told to go on without having waited") }
                self.streams[index].up.maySend = true
            case .ended(let id, let end):
                let index = try self.index(id, isUp: false)
                guard self.streams[index].clientEnd == nil else { throw Broken("a second end at the client") }
                self.streams[index].clientEnd = end
                try self.checkEnd(index, end)
            case .whole(let frame): try self.clientReceivesPlain(frame)
            case .itemsEnded, .failed, .close: throw Broken("the client: \(action)")
            }
        }
    }

    private func checkEnd(_ index: Int, _ end: StreamEnd) throws {
        let stream = self.streams[index]
        switch end.outcome {
        case .answered(.ok):
            guard stream.hasAnswered else { throw Broken("\(stream.serial): answered by nobody") }
            guard stream.down.arrived == stream.down.accepted.count else {
                throw Broken(
                    "\(stream.serial): answered before \(stream.down.accepted.count - stream.down.arrived) items"
                )
            }
        case .answered(.draining), .answered(.overloaded), .answered(.cancelledByServer), .cancelled: break
        case .connectionLost:
            guard self.isLost else { throw Broken("\(stream.serial): lost without a loss") }
        case .damaged, .answered(.lostPacket):
            guard self.damaged.contains(stream.serial) else { throw Broken("\(stream.serial): damaged by nobody") }
        default: throw Broken("\(stream.serial): the client's end is \(end.outcome)")
        }
    }

    private mutating func performServer() throws {
        var actions: [StreamAction] = []
        self.server.takeActions(into: &actions)
        for action in actions {
            switch action {
            case .item(let id, let item):
                try self.receivedItem(item, try self.index(id, isUp: true), isUp: true)
            case .itemsEnded(let id):
                let stream = self.streams[try self.index(id, isUp: true)]
                guard stream.hasFinished, stream.up.arrived == stream.up.accepted.count else {
                    throw Broken("\(stream.serial): the end has passed items")
                }
            case .unblock(let id):
                let index = try self.index(id, isUp: true)
                guard !self.streams[index].down.maySend else { throw Broken("told to go on without having waited") }
                self.streams[index].down.maySend = true
            case .ended(let id, let end):
                let index = try self.index(id, isUp: true)
                guard self.streams[index].serverEnd == nil else { throw Broken("a second end at the server") }
                self.streams[index].serverEnd = end
                self.streams[index].up.inbox = []
                switch end.outcome {
                case .answered, .cancelled, .connectionLost, .drained, .inputClosed: break
                case .damaged where self.damaged.contains(self.streams[index].serial): break
                default: throw Broken("\(self.streams[index].serial): the server's end is \(end.outcome)")
                }
            case .whole(let frame): try self.serverReceivesRequest(frame)
            case .failed, .close: throw Broken("the server: \(action)")
            }
        }
    }

    private func index(_ id: StreamID, isUp: Bool) throws -> Int {
        guard let index = self.streams.lastIndex(where: { isUp ? $0.server == id : $0.client == id }) else {
            throw Broken("a stream that nobody opened")
        }
        return index
    }

    private mutating func receivedItem(_ item: StreamItem, _ index: Int, isUp: Bool) throws {
        let stream = self.streams[index]
        let flow = isUp ? stream.up : stream.down
        guard (isUp ? stream.serverEnd : stream.clientEnd) == nil else { throw Broken("an item after the end") }
        guard flow.arrived < flow.accepted.count else { throw Broken("\(stream.serial): an item that was not sent") }
        let expected = Self.item(stream.serial, flow.arrived, isUp: isUp, flow.accepted[flow.arrived])
        guard item.payload == expected else {
            throw Broken("\(stream.serial): item \(flow.arrived) is another one")
        }
        if isUp {
            self.streams[index].up.arrived += 1
            self.streams[index].up.inbox.append(item)
        } else {
            self.streams[index].down.arrived += 1
            self.streams[index].down.inbox.append(item)
        }
    }
}
