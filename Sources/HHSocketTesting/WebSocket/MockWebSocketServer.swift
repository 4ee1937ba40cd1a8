// SPDX-License-Identifier: Apache-2.0
import DequeModule
public import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// A server of WebSocket messages for tests, over real TCP on 127.0.0.1, which does what the test specifies, valid or
/// not.
///
/// ```swift
/// let server = try await MockWebSocketServer(.echo)
/// server.on(text: "how are you?", .text("fine"))
///
/// let link = WebSocketLink(configuration: try .init(url: server.url))
/// link.connect()
/// try await link.send(WebSocketMessage("how are you?"))
/// #expect(try await server.received(1)[0].text == "how are you?")
/// await server.perform(.text("news"))
/// ```
///
/// A fault that occurs once:
///
/// ```swift
/// server.once(.frame(.text("not for us").masked()))
/// server.onOpening(number: 0, .refuse(status: 503, headers: ["Retry-After": "1"]))
/// server.onPing(.drop)
/// ```
///
/// Pings and close frames are answered, the latter before TCP is closed; a client that breaks RFC 6455 is sent a close
/// frame. For frames of HHSocket over WebSocket there is ``MockServer``.
///
/// The server ends with ``shutdown()`` or when the last reference to it is released.
public final class MockWebSocketServer: Sendable {
    let core: MockWebSocketCore

    /// The address at which it listens, a URL.
    public var endpoint: Endpoint {
        Endpoint(self.core.port.endpoint, isSecure: false, path: self.core.openings.path ?? "/")
    }

    /// The URL at which it listens, such as `ws://127.0.0.1:50123/`.
    public var url: String { "\(self.endpoint)" }

    /// Creates a server that listens.
    ///
    /// - Parameters:
    ///   - reaction: The reaction to messages without a rule. Nothing by default; `MockWebSocketServer(.echo)` is an
    ///     echo server.
    ///   - path: The path of the WebSocket; nil, the default, for any.
    ///   - subprotocols: The supported subprotocols: the first one offered by a client that is among them is selected.
    ///     None by default.
    ///   - compression: The compression that clients may ask for; their messages are then compressed by the same rules
    ///     as a server's. Nil, the default, for none.
    ///   - port: The TCP port on 127.0.0.1; 0, the default, picks a free one.
    ///   - seed: The seed of ``Reaction/oneOf(_:)`` and ``MockServer/ReleaseOrder/shuffled``; 0 by default.
    ///   - clock: The clock of delays; with a ``VirtualClock`` they wait only for the test. Real time by default.
    ///
    /// - Throws: NIO's error if the port is in use; ``/HHSocket/SocketError`` with code `invalidArgument` for invalid
    ///   subprotocols.
    public init(
        _ reaction: Reaction = .drop,
        path: String? = nil,
        subprotocols: [String] = [],
        compression: WebSocketCompression? = nil,
        port: Int = 0,
        seed: UInt64 = 0,
        clock: some Clock<Duration> = ContinuousClock()
    ) async throws {
        let openings = try MockOpenings(path: path, subprotocols: subprotocols, compression: compression)
        let port = (number: port, mock: MockPort(seed: seed) { try await clock.sleep(for: $0) })
        self.core = MockWebSocketCore(port: port.mock, openings: openings, compression: compression)
        self.onAnyOther(reaction)
        try await self.core.port.start(port: port.number) { [weak core] port in
            core.map { MockWebSocketSession(core: $0, port: port) }
        }
    }

    deinit {
        _ = self.core.port.shutdown()
    }

    /// Closes the port and every connection, without close frames, and returns when they are closed.
    public func shutdown() async {
        try? await self.core.port.shutdown().get()
    }

    // MARK: Rules

    /// Sets the reaction to each text message that is equal to `text`.
    public func on(text: String, _ reaction: Reaction) {
        self.core.rules.withLockedValue { $0.standing[text] = reaction }
    }

    /// Sets the reaction to the next text message that is equal to `text`, before the standing rule applies again.
    /// Reactions of several calls are queued.
    public func once(text: String, _ reaction: Reaction) {
        self.core.rules.withLockedValue { $0.onceByText[text, default: []].append(reaction) }
    }

    /// Sets the reaction to the next message that no rule for its text fits. Reactions of several calls are queued.
    public func once(_ reaction: Reaction) {
        self.core.rules.withLockedValue { $0.once.append(reaction) }
    }

    /// Sets the reaction to messages without a rule.
    public func onAnyOther(_ reaction: Reaction) {
        self.core.rules.withLockedValue { $0.other = reaction }
    }

    /// Sets the reaction to pings: a pong with the ping's payload by default. With `.drop` none is answered.
    public func onPing(_ reaction: Reaction) {
        self.core.rules.withLockedValue { $0.ping = reaction }
    }

    /// Sets the reaction to close frames. By default one with the client's code, unless the server has sent one before,
    /// and then the end of TCP. With `.drop` none is answered.
    public func onClose(_ reaction: Reaction) {
        self.core.rules.withLockedValue { $0.close = reaction }
    }

    /// Sets the answer to each request to open a WebSocket. ``MockOpening/accept`` by default.
    public func onOpening(_ answer: MockOpening) {
        self.core.openings.set(answer)
    }

    /// Sets the answer to the request on the connection with this number, counted from 0, instead of the general one.
    public func onOpening(number: Int, _ answer: MockOpening) {
        self.core.openings.set(answer, number: number)
    }

    /// Sets the reaction to each WebSocket that is opened. Its output is sent in one write with the answer to the
    /// opening, unless that is dribbled. Nothing by default.
    public func onOpen(_ reaction: Reaction) {
        self.core.rules.withLockedValue { $0.open = reaction }
    }

    /// Sets the reaction to the WebSocket on the connection with this number, counted from 0, instead of the general
    /// one.
    public func onOpen(number: Int, _ reaction: Reaction) {
        self.core.rules.withLockedValue { $0.openByNumber[number] = reaction }
    }

    // MARK: Now

    /// The open WebSockets, in the order of their opening.
    public var connections: [Connection] {
        let over = Set(self.core.port.ended.events)
        return self.core.opened.events.filter { !over.contains($0.number) }
    }

    /// Performs a reaction now on every open WebSocket. Returns when it has begun. A client that is told that its
    /// WebSocket is open has one.
    public func perform(_ reaction: Reaction) async {
        await self.core.port.acceptEstablished()
        for connection in self.connections { await connection.perform(reaction) }
    }

    /// Stops listening, so that connecting is refused, until ``acceptConnections()``. Open connections stay.
    public func refuseConnections() async throws {
        try await self.core.port.stopListening().get()
    }

    /// Stops listening for a time, by the server's clock. Returns when connecting is refused.
    public func refuseConnections(for duration: Duration) async throws {
        try await self.core.port.stopListening(for: duration)
    }

    /// Listens again, on the same port.
    ///
    /// - Throws: NIO's error if another process has taken the port meanwhile.
    public func acceptConnections() async throws {
        try await self.core.port.listen().get()
    }

    // MARK: What came

    /// All that was received, in order, including control frames.
    public var received: [Received] { self.core.received.events }

    /// Returns the first `count` messages, waiting for those that have not arrived yet.
    ///
    /// - Parameters:
    ///   - count: The number of messages; control frames and violations do not count.
    ///   - number: The number of the connection; nil, the default, counts all connections.
    ///   - time: The time to wait; 60 s by default.
    ///
    /// - Throws: ``NothingHappened`` if they do not arrive in time; it describes what arrived.
    @discardableResult
    public func received(
        _ count: Int,
        onConnection number: Int? = nil,
        within time: Duration = .seconds(60)
    ) async throws -> [Received] {
        try await self.received(count, "\(count) messages", onConnection: number, within: time) {
            $0.message != nil
        }
    }

    /// Returns the first `count` received items for which `matches` returns true, such as control frames.
    ///
    /// - Parameters:
    ///   - count: The number of items to wait for.
    ///   - what: A description for the error.
    ///   - number: The number of the connection; nil, the default, counts all connections.
    ///   - time: The time to wait; 60 s by default.
    ///   - matches: Whether an item counts.
    ///
    /// - Throws: ``NothingHappened`` if they do not arrive in time; it describes what arrived.
    @discardableResult
    public func received(
        _ count: Int,
        _ what: String,
        onConnection number: Int? = nil,
        within time: Duration = .seconds(60),
        where matches: @escaping @Sendable (WebSocketContent) -> Bool
    ) async throws -> [Received] {
        try await self.core.received.wait(count, within: time, what) {
            (number == nil || $0.connection == number) && matches($0.content)
        }
    }

    /// Returns the first close frame on the connection with this number.
    ///
    /// - Throws: ``NothingHappened`` if none arrives in time, 60 s by default; it describes what arrived.
    @discardableResult
    public func closeFrame(
        onConnection number: Int = 0,
        within time: Duration = .seconds(60)
    ) async throws -> Received {
        try await self.received(1, "a close frame", onConnection: number, within: time) {
            if case .close = $0 { true } else { false }
        }[0]
    }

    /// Returns the request to open a WebSocket on the connection with this number, once it has arrived.
    ///
    /// - Throws: ``NothingHappened`` if it does not arrive in time, 60 s by default.
    @discardableResult
    public func opening(_ number: Int, within time: Duration = .seconds(60)) async throws -> MockOpening.Request {
        try await self.core.openings.received(number: number, within: time)
    }

    /// The number of connections accepted so far, opened or not.
    public var acceptedCount: Int { self.core.port.accepted.events.count }

    /// Returns the WebSocket on the connection with this number, counted from 0, once it is open.
    ///
    /// - Throws: ``NothingHappened`` if it is not opened in time, 60 s by default.
    @discardableResult
    public func connection(_ number: Int, within time: Duration = .seconds(60)) async throws -> Connection {
        try await self.core.opened.wait(1, within: time, "connection \(number)") { $0.number == number }[0]
    }

    /// Returns once the client has closed, reset or half-closed TCP on the connection with this number.
    ///
    /// - Throws: ``NothingHappened`` if that does not happen in time, 60 s by default.
    public func ended(connection number: Int, within time: Duration = .seconds(60)) async throws {
        try await self.core.port.ended.wait(1, within: time, "the end of connection \(number)") { $0 == number }
    }
}

extension MockWebSocketServer {
    /// One open WebSocket.
    public struct Connection: Sendable, CustomStringConvertible {
        /// The connection's number, counted from 0 in the order in which connections were accepted.
        public let number: Int
        let session: NIOLoopBound<MockWebSocketSession>

        /// Performs a reaction now. Returns when it has begun; has no effect on a closed connection.
        public func perform(_ reaction: Reaction) async {
            let session = self.session
            try? await session.eventLoop.submit { session.value.perform(reaction, for: nil) }.get()
        }

        public var description: String { "connection \(self.number)" }
    }

    /// A message or a control frame received from a client.
    public struct Received: Sendable, Hashable, CustomStringConvertible {
        /// The number of its connection, counted from 0 in the order in which connections were accepted.
        public var connection: Int
        public var content: WebSocketContent

        /// The text of a text message; nil for anything else.
        public var text: String? { self.content.text }
        /// The message; nil for control frames and violations.
        public var message: WebSocketMessage? { self.content.message }

        public var description: String { "\(self.content) on connection \(self.connection)" }
    }
}

/// The state that the connections of a ``MockWebSocketServer`` share.
final class MockWebSocketCore: Sendable {
    typealias Reaction = MockWebSocketServer.Reaction

    struct Rules {
        var standing: [String: Reaction] = [:]
        var onceByText: [String: Deque<Reaction>] = [:]
        var once: Deque<Reaction> = []
        var other = Reaction.drop
        var ping = Reaction.pong
        var close = Reaction.answeredClose
        var open = Reaction.drop
        var openByNumber: [Int: Reaction] = [:]
    }

    let port: MockPort
    let openings: MockOpenings
    let compression: WebSocketCompression?
    let rules = NIOLockedValueBox(Rules())
    let received = EventLog<MockWebSocketServer.Received>()
    let opened = EventLog<MockWebSocketServer.Connection>()

    init(port: MockPort, openings: MockOpenings, compression: WebSocketCompression?) {
        self.port = port
        self.openings = openings
        self.compression = compression
    }

    /// Adds an open WebSocket, and returns the reaction to it.
    func add(_ session: MockWebSocketSession) -> Reaction {
        let number = session.number
        self.opened.append(.init(number: number, session: NIOLoopBound(session, eventLoop: self.port.loop)))
        return self.rules.withLockedValue { $0.openByNumber[number] ?? $0.open }
    }

    /// Returns the reaction to received content; nil if there is none.
    func reaction(to content: WebSocketContent) -> Reaction? {
        self.rules.withLockedValue { rules in
            switch content {
            case .text(let text):
                if let next = rules.onceByText[text]?.popFirst() { return next }
                return rules.standing[text] ?? rules.once.popFirst() ?? rules.other
            case .binary: return rules.once.popFirst() ?? rules.other
            case .ping: return rules.ping
            case .close: return rules.close
            case .pong, .violation: return nil
            }
        }
    }
}

/// One connection of a ``MockWebSocketServer``.
final class MockWebSocketSession: MockLine {
    typealias Reaction = MockWebSocketServer.Reaction

    /// The server; nil once the connection is closed, so that a reference to a connection does not keep the server.
    private var core: MockWebSocketCore?
    private var upgrade: MockUpgrade?
    /// Nil until the WebSocket is open.
    private var decoder: WebSocketDecoder?
    /// The length from which on messages are compressed; nil if that was not agreed on.
    private var compressedLength: Int?
    private var hasClosed = false
    private lazy var script = MockScript<Reaction.Sending, MockWebSocketServer.Received>(
        self,
        send: { [unowned self] in self.send($0, for: $1) }
    )

    init(core: MockWebSocketCore, port: MockPort) {
        self.core = core
        super.init(port: port)
    }

    override func begin() {
        guard let core = self.core else { return }
        self.upgrade = MockUpgrade(core.openings, on: self) { [unowned self] in self.isOpen($0) }
    }

    private func isOpen(_ agreement: OpeningAgreement) {
        guard let core = self.core, let upgrade = self.upgrade else { return }
        // Without limits, so that everything that can be decoded is recorded.
        var limits = WebSocketLimits()
        limits.maximumMessageLength = .max
        limits.maximumFragments = .max
        var decoder = WebSocketDecoder(role: .server, mode: .messages(limits), deflate: agreement.deflate)
        decoder.append(upgrade.takeRest())
        self.decoder = decoder
        if agreement.deflate != nil { self.compressedLength = core.compression?.minimumLength }
        self.perform(core.add(self), for: nil)
    }

    override func leave() {
        self.upgrade = nil
        self.decoder = nil
        self.core = nil
    }

    override func receive(_ bytes: ByteBuffer) {
        if self.decoder == nil { self.upgrade?.receive(bytes) } else { self.decoder?.append(bytes) }
        self.goOnReading()
    }

    override func goOnReading() {
        do throws(WebSocketViolation) {
            while self.isReading, let input = try self.decoder?.next() { self.received(WebSocketContent(input)) }
        } catch {
            self.decoder = nil
            self.upgrade = nil
            self.received(.violation("\(error)"))
            self.send(.close(code: error.code, reason: "\(error)"))
            self.append(.close)
        }
        self.flush()
    }

    private func received(_ content: WebSocketContent) {
        guard let core = self.core else { return }
        let received = MockWebSocketServer.Received(connection: self.number, content: content)
        core.received.append(received)
        if let reaction = core.reaction(to: content) { self.perform(reaction, for: received) }
    }

    func perform(_ reaction: Reaction, for received: MockWebSocketServer.Received?) {
        self.script.perform(reaction.steps, for: received)
    }

    private func send(_ frame: WebSocketFrame) {
        var bytes = ByteBuffer()
        frame.encode(masks: false, into: &bytes)
        self.send(bytes)
    }

    private func send(_ sending: Reaction.Sending, for received: MockWebSocketServer.Received?) {
        if case .raw(let bytes) = sending.source {
            return self.send(bytes.repeated(sending.copies), sending.dribble)
        }
        guard let frame = self.frame(sending, for: received) else { return }
        var all = ByteBuffer()
        let frames = sending.fragmentLength.map { frame.fragmented(length: $0) } ?? [frame]
        for frame in frames {
            var bytes = ByteBuffer()
            frame.encode(masks: false, into: &bytes)
            let kept = min(max(0, sending.keptBytes ?? .max), bytes.readableBytes)
            all.writeImmutableBuffer(bytes.getSlice(at: bytes.readerIndex, length: kept) ?? bytes)
        }
        self.send(all.repeated(sending.copies), sending.dribble)
    }

    private func frame(
        _ sending: Reaction.Sending,
        for received: MockWebSocketServer.Received?
    ) -> WebSocketFrame? {
        let message: WebSocketMessage
        switch sending.source {
        case .raw:
            return nil
        case .frame(let frame):
            if frame.opcode == .close { self.hasClosed = true }
            return frame
        case .pong:
            guard case .ping(let payload)? = received?.content else { return .pong() }
            return .pong(payload)
        case .answeredClose:
            guard !self.hasClosed, case .close(let code, _)? = received?.content else { return nil }
            self.hasClosed = true
            return code.map { .close(code: $0) } ?? .close()
        case .echo:
            guard let came = received?.message else { return nil }
            message = came
        case .message(let given):
            message = given
        }
        let frame = WebSocketFrame(message.kind == .text ? .text : .binary, message.payload)
        let isLong = self.compressedLength.map { message.payload.readableBytes >= $0 } ?? false
        return sending.isCompressed || isLong ? frame.compressed() : frame
    }
}
