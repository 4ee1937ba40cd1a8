// SPDX-License-Identifier: Apache-2.0
import NIOCore

@testable import InstrumentedHHSocket

/// The streams of a client or a server. The input determines its steps, and the frames of the other side.
enum CallStreamFuzz {
    static func run(_ bytes: [UInt8]) {
        var input = Input(bytes)
        if input.bool() {
            var run = Run(ClientSide(Setup.settings(&input)))
            run.run(&input)
        } else {
            var run = Run(ServerSide(Setup.settings(&input)))
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

    /// One side of a connection, with the operations that differ between the sides.
    private protocol Side {
        associatedtype Streams: FuzzedStreams
        var settings: StreamSettings { get }
        var streams: Streams { get set }

        mutating func open(_ input: inout Input, now: NIODeadline) -> StreamID?
        mutating func end(_ id: StreamID, _ input: inout Input)
        mutating func receive(_ frame: Frame, _ input: inout Input, now: NIODeadline)
        mutating func disturb(_ input: inout Input)
    }

    private struct ClientSide: Side {
        let settings: StreamSettings
        var streams: ClientStreams
        private var serial: UInt32 = 50

        init(_ settings: StreamSettings) {
            self.settings = settings
            self.streams = ClientStreams(settings)
        }

        mutating func open(_ input: inout Input, now: NIODeadline) -> StreamID? {
            guard self.streams.canOpen else { return nil }
            self.serial += 1
            let payload = ByteBuffer(repeating: 0, count: Int(input.byte()) * 400)
            return self.streams.open(type: 16, serial: self.serial, payload: payload, kind: input.kind(), now: now)
        }

        mutating func end(_ id: StreamID, _ input: inout Input) {
            switch input.byte() % 4 {
            case 0: self.streams.cancel(id)
            case 1: self.streams.fail(id, .damaged)
            default: self.streams.finish(id)
            }
        }

        mutating func receive(_ frame: Frame, _ input: inout Input, now: NIODeadline) {
            let isDamaged = input.byte() % 16 == 0
            _ = self.streams.receive(frame, isDamaged: isDamaged, isAwaited: input.bool(), now: now)
        }

        mutating func disturb(_ input: inout Input) {
            let serial = 50 + UInt32(input.byte() % 8)
            if input.bool() {
                let payload = ByteBuffer(repeating: 1, count: Int(input.byte()) * 600)
                self.streams.sendPlain(type: 17, serial: serial + 1_000, payload: payload)
            } else {
                _ = self.streams.dropPlain(serial: serial + 1_000)
            }
        }
    }

    private struct ServerSide: Side {
        let settings: StreamSettings
        var streams: ServerStreams

        init(_ settings: StreamSettings) {
            self.settings = settings
            self.streams = ServerStreams(settings)
        }

        mutating func open(_ input: inout Input, now: NIODeadline) -> StreamID? {
            let serial = 50 + UInt32(input.byte() % 8)
            // The session opens no stream with the serial of an open one: the machine takes that frame.
            let probe = Frame(type: 16, serial: serial)
            guard !self.streams.receive(probe, now: now) else { return nil }
            let opening = self.streams.open(
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

        mutating func end(_ id: StreamID, _ input: inout Input) {
            if input.bool() {
                self.streams.answer(id, status: .ok, payload: ByteBuffer(repeating: 2, count: Int(input.byte()) * 400))
            } else {
                self.streams.fail(id, .unknown)
            }
        }

        mutating func receive(_ frame: Frame, _ input: inout Input, now: NIODeadline) {
            _ = self.streams.receive(frame, isDamaged: input.byte() % 16 == 0, now: now)
        }

        mutating func disturb(_ input: inout Input) {
            let serial = 50 + UInt32(input.byte() % 8)
            switch input.byte() % 16 {
            case 0: self.streams.drain()
            case 1: self.streams.endPatience()
            case 2: self.streams.inputClosed()
            case 3..<10: _ = self.streams.cancelled(serial: serial)
            default:
                let payload = ByteBuffer(repeating: 1, count: Int(input.byte()) * 600)
                self.streams.sendPlain(type: 17, serial: serial, status: .ok, payload: payload)
            }
        }
    }

    private struct Run<S: Side> {
        private var side: S
        private var now = NIODeadline.uptimeNanoseconds(1)
        /// The open streams whose end was not reported yet.
        private var open: [StreamID] = []
        /// The items that the application has not taken.
        private var items: [(StreamID, ItemReceipt)] = []
        private var isClosed = false

        init(_ side: S) {
            self.side = side
        }

        mutating func run(_ input: inout Input) {
            while !input.isEmpty, !self.isClosed {
                self.step(&input)
                self.perform()
            }
            self.side.streams.connectionLost()
            self.perform()
            require(self.open.isEmpty, "\(self.open.count) streams have not ended")
            while let (id, receipt) = self.items.popLast() { self.side.streams.took(id, receipt, now: self.now) }
            self.perform()
            require(self.side.streams.count == 0, "\(self.side.streams.count) streams are kept")
            require(self.side.streams.heldBytes == 0, "\(self.side.streams.heldBytes) bytes are held")
            require(self.side.streams.next(now: self.now) == nil, "a frame leaves a lost connection")
        }

        private mutating func step(_ input: inout Input) {
            switch input.byte() % 16 {
            case 0: if let id = self.side.open(&input, now: self.now) { self.open.append(id) }
            case 1, 2:
                guard let id = self.anyStream(&input) else { return }
                _ = self.side.streams.send(
                    id,
                    ByteBuffer(repeating: 3, count: Int(input.byte()) * 500),
                    isCompressed: false
                )
            case 3: if let id = self.anyStream(&input) { self.side.end(id, &input) }
            case 4, 5:
                guard !self.items.isEmpty else { return }
                let (id, receipt) = self.items.removeFirst()
                self.side.streams.took(id, receipt, now: self.now)
            case 6:
                guard let id = self.anyStream(&input) else { return }
                self.side.streams.release(id)
            case 7: self.side.disturb(&input)
            case 8:
                self.now = self.now + .seconds(Int64(input.byte()) * 8)
                self.side.streams.timePassed(now: self.now)
            case 9, 10:
                for _ in 0..<input.byte() % 8 {
                    guard let frame = self.side.streams.next(now: self.now) else { break }
                    let length = frame.payload.readableBytes
                    require(length <= StreamFrames.maximumPieceLength, "a frame of \(length) bytes leaves")
                    self.perform()
                }
            default: self.side.receive(input.frame(), &input, now: self.now)
            }
        }

        private func anyStream(_ input: inout Input) -> StreamID? {
            self.open.isEmpty ? nil : self.open[Int(input.byte()) % self.open.count]
        }

        private mutating func perform() {
            var actions: [StreamAction] = []
            self.side.streams.takeActions(into: &actions)
            for action in actions {
                switch action {
                case .item(let id, let item):
                    require(
                        item.payload.readableBytes <= self.side.settings.maximumPayloadLength,
                        "an item is too long"
                    )
                    self.items.append((id, item.receipt))
                case .ended(let id, _):
                    guard let index = self.open.firstIndex(of: id) else { return require(false, "an end comes twice") }
                    self.open.remove(at: index)
                case .close: self.isClosed = true
                case .whole(let frame):
                    require(
                        frame.payload.readableBytes <= self.side.settings.maximumPayloadLength,
                        "a payload is too long"
                    )
                case .itemsEnded, .goOn, .failed: break
                }
            }
            // Each frame that is held was admitted by the limit.
            require(
                self.side.streams.heldBytes <= UInt64(self.side.settings.maximumHeldBytes),
                "\(self.side.streams.heldBytes) bytes are held"
            )
            require(
                self.side.streams.openCount == self.open.count,
                "\(self.side.streams.openCount) are open, not \(self.open.count)"
            )
        }
    }
}

/// The functions that the streams of both sides have.
private protocol FuzzedStreams {
    var heldBytes: UInt64 { get }
    var count: Int { get }
    var openCount: Int { get }

    mutating func send(_ id: StreamID, _ payload: ByteBuffer, isCompressed: Bool) -> SendResult
    mutating func took(_ id: StreamID, _ receipt: ItemReceipt, now: NIODeadline)
    mutating func release(_ id: StreamID)
    mutating func next(now: NIODeadline) -> Frame?
    mutating func timePassed(now: NIODeadline)
    mutating func connectionLost()
    mutating func takeActions(into actions: inout [StreamAction])
}

extension ClientStreams: FuzzedStreams {}
extension ServerStreams: FuzzedStreams {}

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
