// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// One connection of a ``MockServer``.
final class MockFrameSession: MockSession<FrameWire> {
    private let format: WireFormat
    private let forge: FrameForge
    private var decoder: FrameDecoder
    /// The result of hello on this connection.
    private var agreement: Agreement?
    /// The streams, where hello has agreed on them.
    private var streams: MockStreams?
    private var outstandingPings: [UInt32: Int] = [:]
    /// The steps that wait for the cancel of a request, by serial.
    private var untilCancelled: [UInt32: [(request: Received, rest: Steps)]] = [:]

    override init(parts: MockParts<FrameWire>, port: MockPort) {
        let format = parts.wire.format
        self.format = format
        self.forge = FrameForge(direction: .response, format: format)
        // Without limits, so that everything that can be decoded is recorded.
        self.decoder = FrameDecoder(
            direction: .request,
            format: format,
            maximumPayloadLength: .max,
            maximumCorruptRun: .max
        )
        super.init(parts: parts, port: port)
    }

    override func isClosed(_ content: WebSocketContent) {
        self.parts?.wire.closeFrames.append(.init(connection: self.number, content: content))
    }

    override func handleEnd() {
        self.untilCancelled = [:]
        super.handleEnd()
    }

    override func waitForCancel(_ request: Received, _ rest: Steps) {
        self.untilCancelled[request.serial, default: []].append((request, rest))
    }

    // MARK: Reading

    override func decode(_ bytes: ByteBuffer) { self.decoder.append(bytes) }

    override func handleNext() -> Bool {
        do throws(FrameError) {
            guard let output = try self.decoder.next() else { return false }
            switch output {
            case .frame(let frame): self.received(.init(connection: self.number, frame: frame, isCorrupt: false))
            case .corrupt(let frame, _): self.received(.init(connection: self.number, frame: frame, isCorrupt: true))
            case .malformed: break
            }
            return true
        } catch {
            self.context?.close(promise: nil)
            return false
        }
    }

    private func received(_ frame: Received) {
        var frame = frame
        if let (isWhole, credits) = self.streams?.receive(&frame) {
            self.sendCredits(credits)
            guard isWhole else { return }
        }
        let request = self.opened(frame)
        self.parts?.received.append(request)
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
            for (request, rest) in waiting { self.proceed(rest, for: request) }
            self.flush()
        }
    }

    private func reaction(to request: Received) -> MockReaction<FrameWire>? {
        guard let parts = self.parts else { return nil }
        let type = request.type
        var reaction: MockReaction<FrameWire>? {
            guard self.format.isControlType(type) else { return parts.reaction(to: type) }
            return parts.rules.withLockedValue { $0.reaction(to: type) }
        }
        guard type == FrameType.item || type == FrameType.end, let streams = self.streams else { return reaction }
        guard !streams.isDeaf(to: request.serial), let streamType = request.streamType else { return nil }
        return reaction ?? parts.wire.reaction(to: type, ofStream: streamType)
    }

    private func sendCredits(_ credits: [Frame]) {
        guard !credits.isEmpty else { return }
        self.perform(.glued(credits.map { .frame($0) }), for: nil)
    }

    private func receivedHello(_ request: Received) {
        guard let answer = self.parts?.wire.answer(toHello: request.body) else { return }
        self.agreement = answer.agreement
        self.streams = answer.agreement?.streams.map { MockStreams($0) }
        self.decoder.agreedFlags = answer.agreement?.flags ?? 0
        self.perform(.answer(answer.payload, status: answer.status), for: request)
    }

    /// Opens the envelope of a frame with flags; returns the frame unchanged if that fails.
    private func opened(_ received: Received) -> Received {
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

    private func receivedHeartbeat(_ request: Received) {
        if let count = self.outstandingPings[request.serial] {
            self.outstandingPings[request.serial] = count > 1 ? count - 1 : nil
        } else if self.format.layout.heartbeat?.pingedBy != .server {
            self.perform(.status(.ok), for: request)
        }
    }

    // MARK: Reacting

    override func send(_ output: FrameWire.Output, _ sending: Sending, for request: Received?) {
        switch output.source {
        case .webSocket(let frame):
            guard let bytes = self.carriage?.encode(frame) else { return }
            self.send(sending.flaws.cut(bytes).repeated(sending.copies), sending.dribble)
        case .stall:
            if let serial = output.serial ?? request?.serial { self.streams?.stall(serial) }
        default:
            guard let bytes = self.bytes(output, sending, for: request) else { return }
            let carriage = self.carriage
            self.send(bytes, sending.dribble) { carriage?.carry($0) ?? $0 }
        }
    }

    private func bytes(_ output: FrameWire.Output, _ sending: Sending, for request: Received?) -> ByteBuffer? {
        guard var frame = self.frame(output, copies: sending.copies, for: request) else { return nil }
        if let serial = output.serial { frame.serial = serial }
        if let sealed = output.sealed(frame) { frame = sealed }
        let pieces = output.pieces(of: frame)
        var bytes = ByteBuffer()
        if output.isFinalAnswer, let credits = self.streams?.end(frame.serial) {
            for credit in credits { self.forge.append(credit, Flaws(), to: &bytes) }
        }
        for _ in 0..<sending.copies {
            for piece in pieces { self.forge.append(piece, sending.flaws, to: &bytes) }
        }
        return bytes
    }

    /// Returns the frame to send; nil if there is none, for example an answer without a request.
    private func frame(_ output: FrameWire.Output, copies: Int, for request: Received?) -> Frame? {
        let serial = output.serial ?? request?.serial
        let windows = self.streams?.terms.client ?? StreamWindows()
        switch output.source {
        case .webSocket, .stall:
            return nil
        case .frame(let frame):
            return frame
        case .ping(let serial):
            let heartbeat = self.format.layout.heartbeat
            let type = heartbeat?.type ?? FrameType.heartbeat
            var frame =
                self.format.serverPing ?? Frame(type: type, serial: heartbeat?.serverSerial ?? 0, status: .ping)
            if let serial { frame.serial = serial }
            // If only clients ping, they do not treat this frame as a ping.
            if heartbeat?.pingedBy != .client { self.outstandingPings[frame.serial, default: 0] += copies }
            return frame
        case .push(let type, let body):
            return self.format.push(type: type, payload: body)
                ?? Frame(type: type, serial: self.format.layout.push?.serial ?? FrameSerial.push, payload: body)
        case .echo:
            return request.map { self.frame(answering: $0, .ok, $0.body) }
        case .answer(let status, let body):
            guard status == .ok || self.format.hasStatus else { return nil }
            if let request { return self.frame(answering: request, status, body) }
            guard let serial, let type = self.streams?.type(of: serial) else { return nil }
            return Frame(type: type, serial: serial, status: status, payload: body)
        case .credit(let payload):
            return serial.map { Frame(type: FrameType.credit, serial: $0, payload: payload) }
        case .creditBeyond(let difference):
            guard let serial else { return nil }
            let granted = self.streams?.granted(serial) ?? 0
            let amount = UInt64(difference.magnitude)
            let credit = difference < 0 ? granted - min(granted, amount) : granted + amount
            return StreamFrames.credit(serial: serial, credit)
        case .item(let body):
            return self.item(serial, body, for: request)
        case .excess(let ofConnection):
            let excess = MockStreams.excess(ofConnection ? windows.connection : windows.stream)
            return self.item(serial, excess, for: request)
        }
    }

    /// Returns an item of the stream with this serial.
    private func item(_ serial: UInt32?, _ body: ByteBuffer, for request: Received?) -> Frame? {
        guard let serial else { return nil }
        let type = self.streams?.type(of: serial) ?? request.flatMap { self.typeOfAnswer(to: $0) }
        return type.map { Frame(type: $0, serial: serial, status: .partial, payload: body) }
    }

    /// The type of an answer: the request's, or, for a frame of a stream, the stream's.
    private func typeOfAnswer(to request: Received) -> UInt32 { request.streamType ?? request.type }

    private func frame(answering request: Received, _ status: Status, _ body: ByteBuffer) -> Frame {
        let type = self.typeOfAnswer(to: request)
        var frame = Frame(type: type, serial: request.serial, status: status, payload: body)
        frame.customFields = self.format.responseFields(answering: request.frame.customFields)
        return frame
    }
}

extension FrameWire.Output {
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
