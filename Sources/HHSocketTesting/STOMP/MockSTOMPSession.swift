// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketSTOMP
import NIOCore

/// One connection of a ``MockBroker``.
final class MockSTOMPSession: MockSession<STOMPWire> {
    private var decoder: STOMPDecoder
    private var version: STOMPVersion?
    /// The bytes that are joined into messages, if a message length is configured.
    private var gathered = ByteBuffer()
    /// The number of reads.
    private var reads = 0

    override init(parts: MockParts<STOMPWire>, port: MockPort) {
        self.decoder = STOMPDecoder(limits: parts.wire.limits)
        super.init(parts: parts, port: port)
    }

    override func isReady(_ agreement: OpeningAgreement?) {
        self.parts?.wire.add(self)
        super.isReady(agreement)
    }

    override func isClosed(_ content: WebSocketContent) {
        guard case .violation(let text) = content else { return }
        self.parts?.wire.violations.append(.init(connection: self.number, text: text))
    }

    override func handleEnd() {
        let parts = self.parts
        super.handleEnd()
        parts?.wire.remove(number: self.number)
    }

    // MARK: Reading

    override func receive(_ bytes: ByteBuffer) {
        self.reads += 1
        super.receive(bytes)
    }

    override func decode(_ bytes: ByteBuffer) {
        if self.decoder.bufferedBytes == 0, bytes.readableBytesView.allSatisfy({ $0 == 0x0A || $0 == 0x0D }) {
            for byte in bytes.readableBytesView where byte == 0x0A { self.parts?.wire.beats.append(self.number) }
        }
        self.decoder.append(bytes)
    }

    override func handleNext() -> Bool {
        do throws(STOMPViolation) {
            guard let frame = try self.decoder.next() else { return false }
            self.parts?.wire.received(frame, on: self)
            return true
        } catch {
            self.fail()
            self.parts?.wire.violated(error, on: self.number)
            return false
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
            guard bound.value.parts != nil else { return }
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
            guard let parts = session.parts else { return }
            let isSilent = session.isReading && session.reads == reads
            guard !isSilent || silentIntervals == 0 else { return parts.wire.missedHeartBeats(of: session.number) }
            session.expectHeartBeats(every: interval, reads: session.reads, silentIntervals: isSilent ? 1 : 0)
        }
    }

    // MARK: Sending

    override func send(_ output: STOMPWire.Output, _ sending: Sending, for received: Received?) {
        let receipt = received?.frame.headers["receipt"]
        let bytes: ByteBuffer?
        switch output.source {
        case .handle(let confirms):
            guard let received else { return }
            for _ in 0..<sending.copies { self.parts?.wire.handle(received, confirms: confirms) }
            return
        case .frame(let frame):
            bytes = self.encode(frame)
        case .error(var frame):
            frame.headers["receipt-id"] = receipt
            bytes = self.encode(frame)
        case .receipt:
            guard let receipt else { return }
            bytes = self.encode(STOMPFrame(.receipt, ["receipt-id": receipt]))
        }
        if let bytes { self.put(sending.flaws.cut(bytes).repeated(sending.copies), sending.dribble) }
    }

    override func sendRaw(_ bytes: ByteBuffer, _ dribble: Dribble?) { self.put(bytes, dribble) }

    private func encode(_ frame: STOMPFrame) -> ByteBuffer? {
        var bytes = ByteBuffer()
        do throws(STOMPRefusal) {
            try STOMPEncoder.encode(frame, version: self.version, into: &bytes)
            return bytes
        } catch {
            self.parts?.wire.violations.append(.init(connection: self.number, text: "the broker cannot send: \(error)"))
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
        if dribble == nil, self.parts?.wire.messageLength != nil {
            self.gathered.writeImmutableBuffer(bytes)
        } else {
            self.sendGathered()
            self.send(bytes, dribble) { carriage.carry($0) }
        }
    }

    /// Sends the gathered bytes, in messages of the configured length.
    private func sendGathered() {
        guard self.gathered.readableBytes > 0, let length = self.parts?.wire.messageLength else { return }
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
