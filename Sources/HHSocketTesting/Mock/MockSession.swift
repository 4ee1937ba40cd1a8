// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// One connection of a ``MockServer``.
final class MockSession: MockLine {
    typealias Reaction = MockServer.Reaction

    /// The server; nil once the connection is closed, so that a reference to a connection does not keep the server.
    private var core: MockServerCore?
    private let format: WireFormat
    private let forge: FrameForge
    private var decoder: FrameDecoder
    private lazy var script = MockScript<Reaction.Sending, MockServer.Received>(
        self,
        send: { [unowned self] in self.send($0, for: $1) },
        waitForCancel: { [unowned self] in self.untilCancelled[$0.serial, default: []].append(($0, $1)) }
    )
    /// The WebSocket that carries the frames; nil over plain TCP.
    private var webSocket: MockCarriage?
    /// The result of hello on this connection.
    private var agreement: Agreement?
    /// The streams, where hello has agreed on them.
    private var streams: MockStreams?
    private var outstandingPings: [UInt32: Int] = [:]
    /// The steps that wait for the cancel of a request, by serial.
    private var untilCancelled: [UInt32: [(request: MockServer.Received, rest: ArraySlice<Reaction.Step>)]] = [:]

    init(core: MockServerCore, port: MockPort) {
        self.core = core
        self.format = core.format
        self.forge = FrameForge(direction: .response, format: core.format)
        // Without limits, so that everything that can be decoded is recorded.
        self.decoder = FrameDecoder(
            direction: .request,
            format: core.format,
            maximumPayloadLength: .max,
            maximumCorruptRun: .max
        )
        super.init(port: port)
    }

    override func begin() {
        guard let openings = self.core?.openings else { return self.isReady() }
        self.webSocket = MockCarriage(openings, on: self) { [unowned self] in
            self.isReady()
        } closed: { [unowned self] in
            self.core?.closeFrames.append(.init(connection: self.number, content: $0))
        }
    }

    /// Frames can be sent.
    private func isReady() {
        guard let reaction = self.core?.add(self) else { return }
        self.perform(reaction, for: nil)
    }

    override func leave() {
        self.untilCancelled = [:]
        self.webSocket = nil
        self.core = nil
    }

    // MARK: Reading

    override func receive(_ bytes: ByteBuffer) {
        if let webSocket = self.webSocket {
            webSocket.receive(bytes)
        } else {
            self.decoder.append(bytes)
        }
        self.goOnReading()
    }

    override func goOnReading() {
        guard let context = self.context else { return }
        self.decodeFrames(context)
        while self.isReading, let webSocket = self.webSocket, let bytes = webSocket.next() {
            self.decoder.append(bytes)
            self.decodeFrames(context)
        }
        self.flush()
    }

    private func decodeFrames(_ context: ChannelHandlerContext) {
        do throws(FrameError) {
            while self.isReading, let output = try self.decoder.next() {
                switch output {
                case .frame(let frame): self.received(.init(connection: self.number, frame: frame, isCorrupt: false))
                case .corrupt(let frame, _):
                    self.received(.init(connection: self.number, frame: frame, isCorrupt: true))
                case .malformed:
                    break
                }
            }
        } catch {
            context.close(promise: nil)
        }
    }

    private func received(_ frame: MockServer.Received) {
        var frame = frame
        if let (isWhole, credits) = self.streams?.receive(&frame) {
            self.sendCredits(credits)
            guard isWhole else { return }
        }
        let request = self.opened(frame)
        self.core?.received.append(request)
        if let reaction = self.reaction(to: request) {
            self.perform(reaction, for: request)
        } else if self.format.isHeartbeatAnswer(type: request.type) {
            self.outstandingPings[request.serial] = nil
        } else if self.format.isHeartbeatRequest(type: request.type, serial: request.serial) {
            self.receivedHeartbeat(request)
        } else if request.type == FrameType.hello, request.serial == FrameSerial.hello, self.format.supportsHello {
            self.receivedHello(request)
        }
        if request.type == self.format.layout.cancel?.type,
            let waiting = self.untilCancelled.removeValue(forKey: request.serial)
        {
            for (request, rest) in waiting { self.script.proceed(rest, for: request) }
            self.flush()
        }
    }

    private func reaction(to request: MockServer.Received) -> Reaction? {
        let isOfStream = request.type == FrameType.item || request.type == FrameType.end
        guard isOfStream, let streams = self.streams else { return self.core?.reaction(to: request.type) }
        guard !streams.isDeaf(to: request.serial), let type = request.streamType else { return nil }
        return self.core?.reaction(to: request.type) ?? self.core?.reaction(to: request.type, ofStream: type)
    }

    private func sendCredits(_ credits: [Frame]) {
        guard !credits.isEmpty else { return }
        self.perform(.glued(credits.map { .frame($0) }), for: nil)
    }

    private func receivedHello(_ request: MockServer.Received) {
        guard let answer = self.core?.answer(toHello: request.body) else { return }
        self.agreement = answer.agreement
        self.streams = answer.agreement?.streams.map { MockStreams($0) }
        self.decoder.agreedFlags = answer.agreement?.flags ?? 0
        self.perform(.answer(answer.payload, status: answer.status), for: request)
    }

    /// Opens the envelope of a frame with flags; returns the frame unchanged if that fails.
    private func opened(_ received: MockServer.Received) -> MockServer.Received {
        guard let agreement = self.agreement, !received.isCorrupt, received.type & FrameType.allFlags != 0,
            let (frame, metadata) = try? Envelope.open(
                received.frame,
                agreedFlags: agreement.flags,
                maximumBodyLength: Frame.defaultMaximumPayloadLength
            )
        else { return received }
        var opened = received
        opened.isCompressed = received.type & FrameType.compressionFlag != 0
        opened.frame = frame
        guard let metadata else { return opened }
        opened.metadata = metadata.values
        opened.deadline = metadata.hasDeadline ? .milliseconds(Int64(clamping: metadata.deadline)) : nil
        opened.idempotencyKey = metadata.idempotencyKey.isEmpty ? nil : metadata.idempotencyKey
        return opened
    }

    private func receivedHeartbeat(_ request: MockServer.Received) {
        if let count = self.outstandingPings[request.serial] {
            self.outstandingPings[request.serial] = count > 1 ? count - 1 : nil
        } else if self.format.layout.heartbeat?.pingedBy != .server {
            self.perform(.status(.ok), for: request)
        }
    }

    // MARK: Reacting

    func perform(_ reaction: Reaction, for request: MockServer.Received?) {
        self.script.perform(reaction.steps, for: request)
    }

    private func send(_ sending: Reaction.Sending, for request: MockServer.Received?) {
        switch sending.source {
        case .raw(let bytes):
            self.send(bytes.repeated(sending.copies), sending.dribble)
        case .webSocket(let frame):
            guard let webSocket = self.webSocket else { return }
            self.send(webSocket.encode(frame, sending), sending.dribble)
        case .stall:
            if let serial = sending.serial ?? request?.serial { self.streams?.stall(serial) }
        default:
            guard let bytes = self.bytes(sending, for: request) else { return }
            let webSocket = self.webSocket
            self.send(bytes, sending.dribble) { webSocket?.carry($0) ?? $0 }
        }
    }

    private func bytes(_ sending: Reaction.Sending, for request: MockServer.Received?) -> ByteBuffer? {
        var frame: Frame
        switch sending.source {
        case .raw, .webSocket, .stall:
            return nil
        case .item, .excess, .credit, .creditBeyond:
            guard let given = self.frameOfStream(sending, for: request) else { return nil }
            frame = given
        case .frame(let given):
            frame = given
        case .ping(let serial):
            let heartbeat = self.format.layout.heartbeat
            frame =
                self.format.serverPing
                ?? Frame(
                    type: heartbeat?.type ?? FrameType.heartbeat,
                    serial: heartbeat?.serverSerial ?? 0,
                    status: .ping
                )
            if let serial { frame.serial = serial }
            // If only clients ping, they do not treat this frame as a ping.
            if heartbeat?.pingedBy != .client { self.outstandingPings[frame.serial, default: 0] += sending.copies }
        case .push(let type, let body):
            frame =
                self.format.push(type: type, payload: body)
                ?? Frame(type: type, serial: self.format.layout.push?.serial ?? FrameSerial.push, payload: body)
        case .echo:
            guard let request else { return nil }
            frame = self.frame(answering: request, .ok, request.body)
        case .answer(let status, let body):
            guard status == .ok || self.format.hasStatus else { return nil }
            if let request {
                frame = self.frame(answering: request, status, body)
            } else if let serial = sending.serial, let type = self.streams?.type(of: serial) {
                frame = Frame(type: type, serial: serial, status: status, payload: body)
            } else {
                return nil
            }
        }
        if let serial = sending.serial { frame.serial = serial }
        if let sealed = sending.sealed(frame) { frame = sealed }
        let pieces = sending.pieces(of: frame)
        var bytes = ByteBuffer()
        if sending.isFinalAnswer, let credits = self.streams?.end(frame.serial) {
            for credit in credits { self.forge.append(credit, Flaws(), to: &bytes) }
        }
        for _ in 0..<sending.copies {
            for piece in pieces { self.forge.append(piece, sending.flaws, to: &bytes) }
        }
        return bytes
    }

    /// Returns an item or a credit of the request's stream, or of the stream with the given serial; nil without either.
    private func frameOfStream(_ sending: Reaction.Sending, for request: MockServer.Received?) -> Frame? {
        guard let serial = sending.serial ?? request?.serial else { return nil }
        let windows = self.streams?.terms.client ?? StreamWindows()
        switch sending.source {
        case .credit(let payload):
            return Frame(type: FrameType.credit, serial: serial, payload: payload)
        case .creditBeyond(let difference):
            let granted = self.streams?.granted(serial) ?? 0
            let amount = UInt64(difference.magnitude)
            return StreamFrames.credit(
                serial: serial,
                difference < 0 ? granted - min(granted, amount) : granted + amount
            )
        case .item(let body):
            return self.item(serial, body, for: request)
        case .excess(let ofConnection):
            let window = ofConnection ? windows.connection : windows.stream
            return self.item(serial, MockStreams.excess(window), for: request)
        default:
            return nil
        }
    }

    private func item(_ serial: UInt32, _ body: ByteBuffer, for request: MockServer.Received?) -> Frame? {
        let type = self.streams?.type(of: serial) ?? request.flatMap { self.typeOfAnswer(to: $0) }
        return type.map { Frame(type: $0, serial: serial, status: .partial, payload: body) }
    }

    /// The type of an answer: the request's, or, for a frame of a stream, the stream's.
    private func typeOfAnswer(to request: MockServer.Received) -> UInt32 { request.streamType ?? request.type }

    private func frame(answering request: MockServer.Received, _ status: Status, _ body: ByteBuffer) -> Frame {
        let type = self.typeOfAnswer(to: request)
        var frame = Frame(type: type, serial: request.serial, status: status, payload: body)
        frame.customFields = self.format.responseFields(answering: request.frame.customFields)
        return frame
    }
}

extension MockServer.Reaction.Sending {
    /// Whether it is the last frame of an answer.
    fileprivate var isFinalAnswer: Bool {
        switch self.source {
        case .echo: !self.isUnfinished
        case .answer(let status, _): status != .partial && !self.isUnfinished
        default: false
        }
    }

    /// Returns the frame in its envelope; nil if it needs none, or cannot have one.
    fileprivate func sealed(_ frame: Frame) -> Frame? {
        guard self.metadata != nil || self.isCompressed else { return nil }
        return try? Envelope.seal(
            frame,
            metadata: self.metadata.map { WireMetadata(values: $0) },
            compression: self.isCompressed ? CompressionPolicy(minimumLength: 0) : nil
        )
    }
}
