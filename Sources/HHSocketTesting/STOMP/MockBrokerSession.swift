// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketSTOMP
import NIOCore

/// One connection of a ``MockBroker``.
final class MockBrokerSession: MockLine {
    typealias Reaction = MockBroker.Reaction

    /// The broker; nil once the connection is closed, so that a reference to a connection does not keep the broker.
    private var core: MockBrokerCore?
    private var decoder: STOMPDecoder
    private var version: STOMPVersion?
    private var carriage: MockCarriage?
    private var hasFailed = false
    /// The bytes that are joined into messages, if a message length is configured.
    private var gathered = ByteBuffer()
    /// The number of reads.
    private var reads = 0
    private lazy var script = MockScript<Reaction.Sending, MockBroker.Received>(
        self,
        send: { [unowned self] in self.send($0, for: $1) }
    )

    init(core: MockBrokerCore, port: MockPort) {
        self.core = core
        self.decoder = STOMPDecoder(limits: core.configuration.limits)
        super.init(port: port)
    }

    override func begin() {
        guard let core = self.core, let openings = core.openings, let webSocket = core.webSocket else {
            return self.isOpen()
        }
        // Frames are limited, not messages.
        var limits = WebSocketLimits()
        limits.maximumMessageLength = .max
        limits.maximumFragments = .max
        self.carriage = MockCarriage(
            openings,
            on: self,
            mode: .messages(limits),
            sendsText: webSocket.sendsText,
            opened: { [unowned self] in self.isOpen() },
            closed: { [unowned self] in self.isClosed($0) }
        )
    }

    private func isOpen() {
        guard let core = self.core else { return }
        self.perform(core.add(self), for: nil)
    }

    private func isClosed(_ content: WebSocketContent) {
        guard case .violation(let text) = content else { return }
        self.core?.violations.append(.init(connection: self.number, text: text))
    }

    override func leave() {
        let core = self.core
        self.core = nil
        self.carriage = nil
        core?.remove(number: self.number)
    }

    // MARK: Reading

    override func receive(_ bytes: ByteBuffer) {
        self.reads += 1
        if let carriage = self.carriage { carriage.receive(bytes) } else { self.decode(bytes) }
        self.goOnReading()
    }

    private func decode(_ bytes: ByteBuffer) {
        if self.decoder.bufferedBytes == 0, bytes.readableBytesView.allSatisfy({ $0 == 0x0A || $0 == 0x0D }) {
            for byte in bytes.readableBytesView where byte == 0x0A { self.core?.beats.append(self.number) }
        }
        self.decoder.append(bytes)
    }

    override func goOnReading() {
        while self.isReading, self.core != nil, !self.hasFailed {
            if let frame = self.nextFrame() {
                self.core?.received(frame, on: self)
            } else if let bytes = self.carriage?.next() {
                self.decode(bytes)
            } else {
                break
            }
        }
        self.flush()
    }

    private func nextFrame() -> STOMPFrame? {
        do throws(STOMPViolation) {
            return try self.decoder.next()
        } catch {
            self.hasFailed = true
            self.core?.violated(error, on: self.number)
            return nil
        }
    }

    func agree(on version: STOMPVersion) {
        self.version = version
        self.decoder.agree(on: version)
    }

    // MARK: Heart-beats

    func sendHeartBeats(every interval: Duration) {
        guard let port = self.port else { return }
        let bound = NIOLoopBound(self, eventLoop: port.loop)
        port.after(interval) {
            guard bound.value.core != nil else { return }
            bound.value.put(ByteBuffer(bytes: [STOMPEncoder.endOfLine]))
            bound.value.flush()
            bound.value.sendHeartBeats(every: interval)
        }
    }

    func expectHeartBeats(every interval: Duration) {
        self.expectHeartBeats(every: interval, reads: self.reads, silentIntervals: 0)
    }

    private func expectHeartBeats(every interval: Duration, reads: Int, silentIntervals: Int) {
        guard let port = self.port else { return }
        let bound = NIOLoopBound(self, eventLoop: port.loop)
        port.after(interval) {
            let session = bound.value
            guard let core = session.core else { return }
            let isSilent = session.isReading && session.reads == reads
            guard !isSilent || silentIntervals == 0 else { return core.missedHeartBeats(of: session.number) }
            session.expectHeartBeats(every: interval, reads: session.reads, silentIntervals: isSilent ? 1 : 0)
        }
    }

    // MARK: Sending

    func perform(_ reaction: Reaction, for received: MockBroker.Received?) {
        self.script.perform(reaction.steps, for: received)
    }

    /// Performs a reaction without sending its output.
    func proceed(_ reaction: Reaction, for received: MockBroker.Received) {
        self.script.proceed(reaction.steps[...], for: received)
    }

    private func send(_ sending: Reaction.Sending, for received: MockBroker.Received?) {
        let bytes: ByteBuffer?
        switch sending.source {
        case .handle(let confirms):
            guard let received else { return }
            for _ in 0..<sending.copies { self.core?.handle(received, confirms: confirms) }
            return
        case .raw(let raw):
            bytes = raw
        case .frame(let frame):
            bytes = self.encode(frame)
        case .error(var frame):
            frame.headers["receipt-id"] = received?.frame.headers["receipt"]
            bytes = self.encode(frame)
        case .receipt:
            guard let receipt = received?.frame.headers["receipt"] else { return }
            bytes = self.encode(STOMPFrame(.receipt, ["receipt-id": receipt]))
        }
        guard var bytes else { return }
        if let kept = sending.keptBytes {
            bytes = bytes.getSlice(at: bytes.readerIndex, length: min(max(0, kept), bytes.readableBytes)) ?? bytes
        }
        self.put(bytes.repeated(sending.copies), sending.dribble)
    }

    private func encode(_ frame: STOMPFrame) -> ByteBuffer? {
        var bytes = ByteBuffer()
        do throws(STOMPRefusal) {
            try STOMPEncoder.encode(frame, version: self.version, into: &bytes)
            return bytes
        } catch {
            self.core?.violations.append(.init(connection: self.number, text: "the broker cannot send: \(error)"))
            return nil
        }
    }

    /// Sends a frame of the broker's, without the headers that its receiver's version cannot express.
    func send(_ frame: STOMPFrame) {
        var frame = frame
        while let refusal = STOMPEncoder.refusal(of: frame, version: self.version), let header = refusal.header,
            frame.headers.contains(name: header)
        {
            frame.headers[header] = nil
        }
        if let bytes = self.encode(frame) { self.put(bytes) }
    }

    private func put(_ bytes: ByteBuffer, _ dribble: Dribble? = nil) {
        guard let carriage = self.carriage else { return self.send(bytes, dribble) }
        if dribble == nil, self.core?.webSocket?.messageLength != nil {
            self.gathered.writeImmutableBuffer(bytes)
        } else {
            self.sendGathered()
            self.send(bytes, dribble) { carriage.carry($0) }
        }
    }

    /// Sends the gathered bytes, in messages of the configured length.
    private func sendGathered() {
        guard self.gathered.readableBytes > 0, let length = self.core?.webSocket?.messageLength else { return }
        var bytes = self.gathered
        self.gathered = ByteBuffer()
        while let message = bytes.readSlice(length: min(max(1, length), bytes.readableBytes)),
            message.readableBytes > 0, let carriage = self.carriage
        {
            self.send(message) { carriage.carry($0) }
        }
    }

    /// A broker's last frame, which may be ERROR, arrives even if the client was sending.
    override func append(_ output: Output) {
        self.sendGathered()
        if case .close = output { super.append(.linger) } else { super.append(output) }
    }

    override func flush() {
        self.sendGathered()
        super.flush()
    }

    /// Closes after everything that was sent before, over WebSocket with a close frame.
    func close() {
        guard let carriage = self.carriage else { return self.append(.close) }
        self.sendGathered()
        carriage.close(WebSocketClose(code: 1_000, reason: ""))
    }
}
