// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// A client's streams, with their output.
struct ClientSide: ~Copyable {
    var streams: ClientStreams
    var now = NIODeadline.uptimeNanoseconds(0)

    init(_ terms: StreamTerms = StreamTerms(), _ change: (inout StreamSettings) -> Void = { _ in }) {
        var settings = StreamSettings(terms: terms)
        change(&settings)
        self.streams = ClientStreams(settings)
    }

    mutating func open(_ serial: UInt32, _ kind: StreamKind = .bidirectional) -> StreamID {
        self.streams.open(type: 1_000, serial: serial, kind: kind, now: self.now)
    }

    /// Takes the frames that may be sent now.
    mutating func frames() -> [Frame] {
        var frames: [Frame] = []
        while let frame = self.streams.next(now: self.now) { frames.append(frame) }
        return frames
    }

    mutating func actions() -> [StreamAction] {
        var actions: [StreamAction] = []
        self.streams.takeActions(into: &actions)
        return actions
    }

    /// Takes the outcomes of streams since the last call.
    mutating func ends() -> [StreamOutcome] { self.actions().outcomes }

    @discardableResult
    mutating func receive(_ frame: Frame, isDamaged: Bool = false, isAwaited: Bool = false) -> Bool {
        self.streams.receive(ArrivedFrame(frame), isDamaged: isDamaged, isAwaited: isAwaited, now: self.now)
    }

    /// Receives a response.
    @discardableResult
    mutating func receive(
        _ serial: UInt32,
        _ status: Status,
        _ length: Int = 0,
        flags: UInt32 = 0,
        isAwaited: Bool = false
    ) -> Bool {
        let payload = ByteBuffer(repeating: 1, count: length)
        return self.receive(
            Frame(type: 1_000 | flags, serial: serial, status: status, payload: payload),
            isAwaited: isAwaited
        )
    }
}

/// A server's streams, with their output.
struct ServerSide: ~Copyable {
    var streams: ServerStreams
    var now = NIODeadline.uptimeNanoseconds(0)

    init(_ terms: StreamTerms = StreamTerms(), _ change: (inout StreamSettings) -> Void = { _ in }) {
        var settings = StreamSettings(terms: terms)
        change(&settings)
        self.streams = ServerStreams(settings)
    }

    mutating func open(_ serial: UInt32, _ kind: StreamKind = .bidirectional) throws -> StreamID {
        guard
            case .opened(let id) = self.streams.open(
                type: 1_000,
                serial: serial,
                kind: kind,
                hasBody: !kind.clientStreams,
                now: self.now
            )
        else { throw Broken("\(serial) was refused") }
        return id
    }

    /// Takes the frames that may be sent now.
    mutating func frames() -> [Frame] {
        var frames: [Frame] = []
        while let frame = self.streams.next(now: self.now) { frames.append(frame) }
        return frames
    }

    mutating func actions() -> [StreamAction] {
        var actions: [StreamAction] = []
        self.streams.takeActions(into: &actions)
        return actions
    }

    /// Takes the outcomes of streams since the last call.
    mutating func ends() -> [StreamOutcome] { self.actions().outcomes }

    @discardableResult
    mutating func receive(_ frame: Frame, isDamaged: Bool = false) -> Bool {
        self.streams.receive(ArrivedFrame(frame), isDamaged: isDamaged, now: self.now)
    }

    /// Receives an item.
    mutating func item(_ serial: UInt32, _ length: Int, flags: UInt32 = 0, isDamaged: Bool = false) {
        let payload = ByteBuffer(repeating: 1, count: length)
        self.receive(Frame(type: FrameType.item | flags, serial: serial, payload: payload), isDamaged: isDamaged)
    }

    mutating func end(_ serial: UInt32) { self.receive(StreamFrames.end(serial: serial)) }
}

extension [StreamAction] {
    var outcomes: [StreamOutcome] { self.ends.map(\.outcome) }

    var ends: [StreamEnd] {
        self.compactMap { if case .ended(_, let end) = $0 { end } else { nil } }
    }

    var items: [StreamItem] {
        self.compactMap { if case .item(_, let item) = $0 { item } else { nil } }
    }

    var whole: [Frame] {
        self.compactMap { if case .whole(let frame) = $0 { frame } else { nil } }
    }

    var failures: [PayloadFailure] {
        self.compactMap { if case .failed(_, _, let failure) = $0 { failure } else { nil } }
    }

    var faults: [StreamFault] {
        self.compactMap { if case .close(let fault) = $0 { fault } else { nil } }
    }
}

extension [Frame] {
    /// A summary of the frames: cancels, credits, and the others by status.
    var summary: [String] {
        self.map { frame in
            switch frame.type {
            case FrameType.cancel: "cancel \(frame.serial)"
            case FrameType.credit: "credit \(frame.serial) \(StreamFrames.credit(in: frame.payload) ?? 0)"
            case FrameType.end: "end \(frame.serial)"
            default: "\(frame.type) \(frame.serial) \(frame.status) \(frame.payload.readableBytes)"
            }
        }
    }
}

extension StreamMachine where Self: ~Copyable {
    /// Appends the next actions to `actions`.
    mutating func takeActions(into actions: inout [StreamAction]) {
        while let action = self.nextAction() { actions.append(action) }
    }
}
