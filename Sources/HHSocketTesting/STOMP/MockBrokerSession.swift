import DequeModule
import HHSocket
import HHSocketSTOMP
import NIOConcurrencyHelpers
import NIOCore

/// The state that the connections of a ``MockBroker`` share.
final class MockBrokerCore: Sendable {
    typealias Reaction = MockBroker.Reaction

    struct Rules {
        var standing: [STOMPCommand: Reaction] = [:]
        var once: [STOMPCommand: Deque<Reaction>] = [:]
        var other = Reaction.handle
        var open = Reaction.drop
        var openByNumber: [Int: Reaction] = [:]
    }

    private struct LoopState {
        var sessions: [Int: MockBrokerSession] = [:]
        /// The connections with output that leaves once the frame that caused it is recorded; nil where it leaves at
        /// once.
        var delayed: Set<Int>?
    }

    struct Violation: CustomStringConvertible {
        var connection: Int
        var text: String

        var description: String { "\(self.text) on connection \(self.connection)" }
    }

    let port: MockPort
    let configuration: MockBroker.Configuration
    let webSocket: MockBroker.WebSocket?
    let openings: MockOpenings?
    let isSecure: Bool
    let broker: NIOLockedValueBox<BrokerCore>
    let rules = NIOLockedValueBox(Rules())
    let received = EventLog<MockBroker.Received>()
    let opened = EventLog<MockBroker.Connection>()
    /// The connections on which ends of lines came between frames.
    let beats = EventLog<Int>()
    let violations = EventLog<Violation>()
    private let state: NIOLoopBoundBox<LoopState>

    init(
        port: MockPort,
        configuration: MockBroker.Configuration,
        webSocket: MockBroker.WebSocket?,
        openings: MockOpenings?,
        isSecure: Bool
    ) {
        self.port = port
        self.configuration = configuration
        self.webSocket = webSocket
        self.openings = openings
        self.isSecure = isSecure
        self.broker = NIOLockedValueBox(BrokerCore(configuration))
        self.state = .makeBoxSendingValue(LoopState(), eventLoop: port.loop)
    }

    // MARK: On the loop

    /// Adds a connection, and returns the reaction to it.
    func add(_ session: MockBrokerSession) -> Reaction {
        let number = session.number
        self.state.value.sessions[number] = session
        self.broker.withLockedValue { $0.opened(number) }
        self.opened.append(.init(number: number, session: NIOLoopBound(session, eventLoop: self.port.loop)))
        return self.rules.withLockedValue { $0.openByNumber[number] ?? $0.open }
    }

    func remove(number: Int) {
        self.state.value.sessions[number] = nil
        self.perform(self.broker.withLockedValue { $0.ended(number) })
    }

    /// Reacts to a frame, and records it: after the broker's state has changed, and before others can know.
    func received(_ frame: STOMPFrame, on session: MockBrokerSession) {
        let received = MockBroker.Received(connection: session.number, frame: frame)
        self.state.value.delayed = []
        session.proceed(self.reaction(to: frame), for: received)
        self.received.append(received)
        let delayed = self.state.value.delayed ?? []
        self.state.value.delayed = nil
        self.flush(delayed)
    }

    private func reaction(to frame: STOMPFrame) -> Reaction {
        self.rules.withLockedValue { rules in
            rules.once[frame.command]?.popFirst() ?? rules.standing[frame.command] ?? rules.other
        }
    }

    func handle(_ received: MockBroker.Received, confirms: Bool) {
        let actions = self.broker.withLockedValue {
            $0.received(received.frame, on: received.connection, confirms: confirms)
        }
        self.perform(actions, for: received.connection)
    }

    func violated(_ violation: STOMPViolation, on number: Int) {
        self.violations.append(.init(connection: number, text: violation.description))
        self.perform(self.broker.withLockedValue { $0.received(violation, on: number) }, for: number)
    }

    func missedHeartBeats(of number: Int) {
        self.perform(self.broker.withLockedValue { $0.missedHeartBeats(of: number) })
    }

    func publish(_ body: ByteBuffer, to destination: String, headers: STOMPHeaders) -> Bool {
        let actions = self.broker.withLockedValue { $0.publish(body, to: destination, headers: headers) }
        guard let actions else { return false }
        self.perform(actions)
        return true
    }

    /// - Parameter current: The connection that gathers its output itself; nil for none.
    private func perform(_ actions: [BrokerCore.Action], for current: Int? = nil) {
        var numbers: Set<Int> = []
        for action in actions {
            switch action {
            case .send(let frame, let number):
                self.state.value.sessions[number]?.send(frame)
                numbers.insert(number)
            case .agree(let version, let number):
                self.state.value.sessions[number]?.agree(on: version)
            case .beat(let number, let sends, let expects):
                if let sends { self.state.value.sessions[number]?.sendHeartBeats(every: .milliseconds(sends)) }
                if let expects { self.state.value.sessions[number]?.expectHeartBeats(every: .milliseconds(expects)) }
            case .close(let number):
                self.state.value.sessions[number]?.close()
                numbers.insert(number)
            }
        }
        if let current { numbers.remove(current) }
        if self.state.value.delayed == nil {
            self.flush(numbers)
        } else {
            self.state.value.delayed?.formUnion(numbers)
        }
    }

    private func flush(_ numbers: Set<Int>) {
        for number in numbers { self.state.value.sessions[number]?.flush() }
    }
}

/// One connection of a ``MockBroker``.
final class MockBrokerSession: MockLine {
    typealias Reaction = MockBroker.Reaction

    /// The broker; nil once the connection is gone, so that a reference to a connection does not keep the broker.
    private var core: MockBrokerCore?
    private var decoder: STOMPDecoder
    private var version: STOMPVersion?
    private var carriage: MockCarriage?
    private var hasFailed = false
    /// Bytes that are joined into messages, where their length is given.
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

    /// Performs a reaction without letting its output leave.
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

    /// Sends what was gathered, in messages of the length that is given.
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

    override func append(_ output: Output) {
        self.sendGathered()
        super.append(output)
    }

    override func flush() {
        self.sendGathered()
        super.flush()
    }

    /// Closes after what was sent before, over WebSocket with a close frame.
    func close() {
        guard let carriage = self.carriage else { return self.append(.close) }
        self.sendGathered()
        carriage.close(WebSocketClose(code: 1_000, reason: ""))
    }
}
