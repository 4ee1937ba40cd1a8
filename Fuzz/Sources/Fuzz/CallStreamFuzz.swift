// SPDX-License-Identifier: Apache-2.0
import NIOCore

@testable import InstrumentedHHSocketLink

/// The streams of a client or a server. The input determines its steps, and the frames of the other side.
enum CallStreamFuzz {
    static func run(_ bytes: [UInt8]) {
        var input = Input(bytes)
        if input.bool() {
            let settings = Setup.settings(&input)
            var run = Run(ClientStreams(settings), settings)
            run.run(&input)
        } else {
            let settings = Setup.settings(&input)
            var run = Run(ServerStreams(settings), settings)
            run.run(&input)
        }
    }

    private enum Setup {
        static func settings(_ input: inout Input) -> StreamSettings {
            let windows = StreamWindows(stream: Self.window(&input), connection: Self.window(&input))
            let others = StreamWindows(stream: Self.window(&input), connection: Self.window(&input))
            return StreamSettings(
                terms: StreamTerms(client: windows, server: others, maximumStreams: UInt32(input.byte() % 8)),
                maximumPayloadLength: Int(input.byte()) * 16,
                maximumHeldBytes: Int(input.byte()) * 64,
                maximumQueuedBytes: Int(input.byte()) * 64,
                maximumUnfinished: Int(input.byte() % 8)
            )
        }

        private static func window(_ input: inout Input) -> UInt32 { input.word() % 300_000 }
    }

    private struct Run<Streams: FuzzedStreams & ~Copyable>: ~Copyable {
        private var streams: Streams
        private let settings: StreamSettings
        /// The serial of the stream that a client opened last.
        private var lastSerial: UInt32 = 50
        private var now = NIODeadline.uptimeNanoseconds(1)
        /// The open streams whose end was not reported yet.
        private var open: [StreamID] = []
        /// The items that the application has not taken.
        private var items: [(StreamID, ItemReceipt)] = []
        private var isClosed = false

        init(_ streams: consuming Streams, _ settings: StreamSettings) {
            self.streams = streams
            self.settings = settings
        }

        mutating func run(_ input: inout Input) {
            while !input.isEmpty, !self.isClosed {
                self.step(&input)
                self.perform()
            }
            self.streams.connectionLost()
            self.perform()
            require(self.open.isEmpty, "\(self.open.count) streams have not ended")
            while let (id, receipt) = self.items.popLast() { self.streams.took(id, receipt, now: self.now) }
            self.perform()
            require(self.streams.count == 0, "\(self.streams.count) streams are kept")
            require(self.streams.heldBytes == 0, "\(self.streams.heldBytes) bytes are held")
            require(self.streams.next(now: self.now) == nil, "a frame leaves a lost connection")
        }

        private mutating func step(_ input: inout Input) {
            switch input.byte() % 16 {
            case 0:
                if let id = self.streams.open(&input, &self.lastSerial, now: self.now) { self.open.append(id) }
            case 1, 2:
                guard let id = self.anyStream(&input) else { return }
                let payload = ByteBuffer(repeating: 3, count: Int(input.byte()) * 500)
                _ = self.streams.send(id, payload, isCompressed: false)
            case 3: if let id = self.anyStream(&input) { self.streams.end(id, &input) }
            case 4, 5:
                guard !self.items.isEmpty else { return }
                let (id, receipt) = self.items.removeFirst()
                self.streams.took(id, receipt, now: self.now)
            case 6:
                guard let id = self.anyStream(&input) else { return }
                self.streams.release(id)
            case 7: self.streams.disturb(&input)
            case 8:
                self.now = self.now + .seconds(Int64(input.byte()) * 8)
                self.streams.timePassed(now: self.now)
            case 9, 10:
                for _ in 0..<input.byte() % 8 {
                    guard let frame = self.streams.next(now: self.now) else { break }
                    let length = frame.payload.readableBytes
                    require(length <= StreamFrames.maximumPieceLength, "a frame of \(length) bytes leaves")
                    self.perform()
                }
            default: self.streams.receive(input.frame(), &input, now: self.now)
            }
        }

        private func anyStream(_ input: inout Input) -> StreamID? {
            self.open.isEmpty ? nil : self.open[Int(input.byte()) % self.open.count]
        }

        private mutating func perform() {
            var actions: [StreamAction] = []
            while let action = self.streams.nextAction() { actions.append(action) }
            for action in actions {
                switch action {
                case .item(let id, let item):
                    let length = item.payload.readableBytes
                    require(length <= self.settings.maximumPayloadLength, "an item is too long")
                    self.items.append((id, item.receipt))
                case .ended(let id, _):
                    guard let index = self.open.firstIndex(of: id) else { return require(false, "an end comes twice") }
                    self.open.remove(at: index)
                case .close: self.isClosed = true
                case .whole(let frame):
                    let length = frame.payload.readableBytes
                    require(length <= self.settings.maximumPayloadLength, "a payload is too long")
                case .itemsEnded, .unblock, .failed: break
                }
            }
            // Each frame that is held was admitted by the limit.
            require(
                self.streams.heldBytes <= UInt64(self.settings.maximumHeldBytes),
                "\(self.streams.heldBytes) bytes are held"
            )
            require(
                self.streams.openCount == self.open.count,
                "\(self.streams.openCount) are open, not \(self.open.count)"
            )
        }
    }
}

/// The functions that the streams of both sides have, and below the operations that differ between the sides.
private protocol FuzzedStreams: ~Copyable {
    var heldBytes: UInt64 { get }
    var count: Int { get }
    var openCount: Int { get }

    mutating func send(_ id: StreamID, _ payload: ByteBuffer, isCompressed: Bool) -> SendResult
    mutating func took(_ id: StreamID, _ receipt: ItemReceipt, now: NIODeadline)
    mutating func release(_ id: StreamID)
    mutating func next(now: NIODeadline) -> Frame?
    mutating func timePassed(now: NIODeadline)
    mutating func connectionLost()
    mutating func nextAction() -> StreamAction?

    mutating func open(_ input: inout Input, _ lastSerial: inout UInt32, now: NIODeadline) -> StreamID?
    mutating func end(_ id: StreamID, _ input: inout Input)
    mutating func receive(_ frame: Frame, _ input: inout Input, now: NIODeadline)
    mutating func disturb(_ input: inout Input)
}

extension ClientStreams: FuzzedStreams {
    fileprivate mutating func open(
        _ input: inout Input,
        _ lastSerial: inout UInt32,
        now: NIODeadline
    ) -> StreamID? {
        guard self.canOpen else { return nil }
        lastSerial += 1
        let payload = ByteBuffer(repeating: 0, count: Int(input.byte()) * 400)
        return self.open(type: 16, serial: lastSerial, payload: payload, kind: input.kind(), now: now)
    }

    fileprivate mutating func end(_ id: StreamID, _ input: inout Input) {
        switch input.byte() % 4 {
        case 0: self.cancel(id)
        case 1: self.fail(id, .damaged)
        default: self.finish(id)
        }
    }

    fileprivate mutating func receive(_ frame: Frame, _ input: inout Input, now: NIODeadline) {
        let isDamaged = input.byte() % 16 == 0
        _ = self.receive(ArrivedFrame(frame), isDamaged: isDamaged, isAwaited: input.bool(), now: now)
    }

    fileprivate mutating func disturb(_ input: inout Input) {
        let serial = 50 + UInt32(input.byte() % 8)
        if input.bool() {
            let payload = ByteBuffer(repeating: 1, count: Int(input.byte()) * 600)
            self.sendPlain(type: 17, serial: serial + 1_000, payload: payload)
        } else {
            _ = self.dropPlain(serial: serial + 1_000)
        }
    }
}

extension ServerStreams: FuzzedStreams {
    fileprivate mutating func open(
        _ input: inout Input,
        _ lastSerial: inout UInt32,
        now: NIODeadline
    ) -> StreamID? {
        let serial = 50 + UInt32(input.byte() % 8)
        // The session opens no stream with the serial of an open one: the machine takes that frame.
        guard !self.receive(ArrivedFrame(Frame(type: 16, serial: serial)), now: now) else { return nil }
        let opening = self.open(
            type: 16,
            serial: serial,
            kind: input.kind(),
            hasBody: input.byte() % 4 == 0,
            hasKey: input.byte() % 8 == 0,
            now: now
        )
        guard case .opened(let id) = opening else { return nil }
        return id
    }

    fileprivate mutating func end(_ id: StreamID, _ input: inout Input) {
        if input.bool() {
            self.answer(id, status: .ok, payload: ByteBuffer(repeating: 2, count: Int(input.byte()) * 400))
        } else {
            self.fail(id, .unknown)
        }
    }

    fileprivate mutating func receive(_ frame: Frame, _ input: inout Input, now: NIODeadline) {
        _ = self.receive(ArrivedFrame(frame), isDamaged: input.byte() % 16 == 0, now: now)
    }

    fileprivate mutating func disturb(_ input: inout Input) {
        let serial = 50 + UInt32(input.byte() % 8)
        switch input.byte() % 16 {
        case 0: self.drain()
        case 1: self.endPatience()
        case 2: self.inputClosed()
        case 3..<10: _ = self.cancelled(serial: serial)
        default:
            let payload = ByteBuffer(repeating: 1, count: Int(input.byte()) * 600)
            self.sendPlain(type: 17, serial: serial, status: .ok, payload: payload)
        }
    }
}

extension Input {
    fileprivate mutating func kind() -> StreamKind {
        self.choice([.clientStreaming, .serverStreaming, .bidirectional])
    }

    /// A frame that may belong to a stream.
    fileprivate mutating func frame() -> Frame {
        let serial = self.choice([0, 1] + Array(50..<58) as [UInt32])
        var type = self.choice([FrameType.item, FrameType.item, FrameType.credit, FrameType.end, 16, 16, 17])
        if self.byte() % 4 == 0 { type |= FrameType.continuesFlag }
        if self.byte() % 16 == 0 { type |= FrameType.compressionFlag }
        if self.byte() % 32 == 0 { type |= FrameType.metadataFlag }
        let status = self.choice([Status.partial, .partial, .ok, .unknown])
        if type == FrameType.credit, self.byte() % 8 != 0 {
            let credit = UInt64(self.word()) << UInt64(self.byte() % 33)
            return Frame(type: type, serial: serial, status: status, payload: ByteBuffer(integer: credit))
        }
        let length = Int(self.byte()) * Int(self.byte() % 32)
        return Frame(type: type, serial: serial, status: status, payload: ByteBuffer(repeating: 5, count: length))
    }
}
