// SPDX-License-Identifier: Apache-2.0
import DequeModule
public import HHSocket
import NIOConcurrencyHelpers
public import NIOCore

/// A server of lines for tests, over real TCP on 127.0.0.1, which does what the test specifies, valid or not.
///
/// ```swift
/// let server = try await LineServer(.echo)
/// server.on(text: "how are you?", .line("fine"))
///
/// let link = LineLink(configuration: .init(servers: [server.endpoint]))
/// link.connect()
/// try await link.send("how are you?")
/// #expect(try await server.received(1)[0].text == "how are you?")
/// await server.perform(.line("news"))
/// ```
///
/// A fault that occurs once:
///
/// ```swift
/// server.once(.line("never whole").cut(after: 5).then(.disconnect))
/// ```
///
/// The server ends with ``shutdown()`` or when the last reference to it is released.
public final class LineServer: Sendable {
    let core: LineServerCore

    /// The address at which it listens.
    public var endpoint: Endpoint { self.core.port.endpoint }

    /// Creates a server that listens.
    ///
    /// - Parameters:
    ///   - reaction: The reaction to lines without a rule. Nothing by default; `LineServer(.echo)` is an echo server.
    ///   - delimiter: The bytes between two lines; LF by default.
    ///   - port: The TCP port on 127.0.0.1; 0, the default, picks a free one.
    ///   - seed: The seed of ``Reaction/oneOf(_:)`` and ``MockServer/ReleaseOrder/shuffled``; 0 by default.
    ///   - clock: The clock of delays; with a ``VirtualClock`` they wait only for the test. Real time by default.
    /// - Throws: NIO's error if the port is in use.
    public init(
        _ reaction: Reaction = .drop,
        delimiter: LineDelimiter = .lf,
        port: Int = 0,
        seed: UInt64 = 0,
        clock: some Clock<Duration> = ContinuousClock()
    ) async throws {
        let mock = MockPort(seed: seed) { try await clock.sleep(for: $0) }
        self.core = LineServerCore(port: mock, delimiter: delimiter)
        self.onAnyOther(reaction)
        try await mock.start(port: port) { [weak core] port in
            core.map { LineServerSession(core: $0, port: port) }
        }
    }

    deinit {
        _ = self.core.port.shutdown()
    }

    /// Closes the port and every connection, and returns when they are closed.
    public func shutdown() async {
        try? await self.core.port.shutdown().get()
    }

    // MARK: Rules

    /// Sets the reaction to each line that is equal to `text`.
    public func on(text: String, _ reaction: Reaction) {
        self.core.rules.withLockedValue { $0.standing[text] = reaction }
    }

    /// Sets the reaction to the next line that is equal to `text`, before the standing rule applies again. Reactions of
    /// several calls are queued.
    public func once(text: String, _ reaction: Reaction) {
        self.core.rules.withLockedValue { $0.onceByText[text, default: []].append(reaction) }
    }

    /// Sets the reaction to the next line that no rule for its text fits. Reactions of several calls are queued.
    public func once(_ reaction: Reaction) {
        self.core.rules.withLockedValue { $0.once.append(reaction) }
    }

    /// Sets the reaction to lines without a rule.
    public func onAnyOther(_ reaction: Reaction) {
        self.core.rules.withLockedValue { $0.other = reaction }
    }

    /// Sets the reaction to each connection. Nothing by default.
    public func onOpen(_ reaction: Reaction) {
        self.core.rules.withLockedValue { $0.open = reaction }
    }

    /// Sets the reaction to the connection with this number, counted from 0, instead of the general one.
    public func onOpen(number: Int, _ reaction: Reaction) {
        self.core.rules.withLockedValue { $0.openByNumber[number] = reaction }
    }

    // MARK: Now

    /// The open connections, in the order in which they were accepted.
    public var connections: [Connection] {
        let over = Set(self.core.port.ended.events)
        return self.core.opened.events.filter { !over.contains($0.number) }
    }

    /// Performs a reaction now on every open connection, including those that clients have opened and that were not
    /// accepted yet. Returns when it has begun.
    public func perform(_ reaction: Reaction) async {
        await self.core.port.acceptEstablished()
        for connection in self.connections { await connection.perform(reaction) }
    }

    /// Stops listening, so that connecting is refused, until ``acceptConnections()``. Open connections stay.
    public func refuseConnections() async throws {
        try await self.core.port.stopListening().get()
    }

    /// Listens again, on the same port.
    ///
    /// - Throws: NIO's error if another process has taken the port meanwhile.
    public func acceptConnections() async throws {
        try await self.core.port.listen().get()
    }

    // MARK: What came

    /// All lines that were received, in order.
    public var received: [Received] { self.core.received.events }

    /// Returns the first `count` lines, waiting for those that have not arrived yet.
    ///
    /// - Parameters:
    ///   - count: The number of lines to wait for.
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
        try await self.core.received.wait(count, within: time, "\(count) lines") {
            number == nil || $0.connection == number
        }
    }

    /// The number of connections accepted so far.
    public var acceptedCount: Int { self.core.port.accepted.events.count }

    /// Returns the connection with this number, counted from 0, once it is accepted.
    ///
    /// - Throws: ``NothingHappened`` if that does not happen in time, 60 s by default.
    @discardableResult
    public func connection(_ number: Int, within time: Duration = .seconds(60)) async throws -> Connection {
        try await self.core.opened.wait(1, within: time, "connection \(number)") { $0.number == number }[0]
    }

    /// Returns once the client has closed, reset or half-closed the connection with this number.
    ///
    /// - Throws: ``NothingHappened`` if that does not happen in time, 60 s by default.
    public func ended(connection number: Int, within time: Duration = .seconds(60)) async throws {
        try await self.core.port.ended.wait(1, within: time, "the end of connection \(number)") { $0 == number }
    }
}

extension LineServer {
    /// One connection.
    public struct Connection: Sendable, CustomStringConvertible {
        /// The connection's number, counted from 0 in the order in which connections were accepted.
        public let number: Int
        let session: NIOLoopBound<LineServerSession>

        /// Performs a reaction now. Returns when it has begun; has no effect on a closed connection.
        public func perform(_ reaction: Reaction) async {
            let session = self.session
            try? await session.eventLoop.submit { session.value.perform(reaction, for: nil) }.get()
        }

        public var description: String { "connection \(self.number)" }
    }

    /// A line received from a client.
    public struct Received: Sendable, Hashable, CustomStringConvertible {
        /// The number of its connection, counted from 0 in the order in which connections were accepted.
        public var connection: Int
        /// The line without its delimiter.
        public var bytes: ByteBuffer

        /// The line as text; nil if it is not UTF-8.
        public var text: String? { try? LineLink.Line(bytes: self.bytes).text }

        public var description: String { "\(self.text ?? "\(self.bytes)") on connection \(self.connection)" }
    }
}

/// The state that the connections of a ``LineServer`` share.
final class LineServerCore: Sendable {
    typealias Reaction = LineServer.Reaction

    struct Rules {
        var standing: [String: Reaction] = [:]
        var onceByText: [String: Deque<Reaction>] = [:]
        var once: Deque<Reaction> = []
        var other = Reaction.drop
        var open = Reaction.drop
        var openByNumber: [Int: Reaction] = [:]
    }

    let port: MockPort
    let delimiter: LineDelimiter
    let rules = NIOLockedValueBox(Rules())
    let received = EventLog<LineServer.Received>()
    let opened = EventLog<LineServer.Connection>()

    init(port: MockPort, delimiter: LineDelimiter) {
        self.port = port
        self.delimiter = delimiter
    }

    /// Adds a connection, and returns the reaction to it.
    func add(_ session: LineServerSession) -> Reaction {
        let number = session.number
        self.opened.append(.init(number: number, session: NIOLoopBound(session, eventLoop: self.port.loop)))
        return self.rules.withLockedValue { $0.openByNumber[number] ?? $0.open }
    }

    func reaction(to line: LineServer.Received) -> Reaction {
        self.rules.withLockedValue { rules in
            guard let text = line.text else { return rules.once.popFirst() ?? rules.other }
            if let next = rules.onceByText[text]?.popFirst() { return next }
            return rules.standing[text] ?? rules.once.popFirst() ?? rules.other
        }
    }
}

/// One connection of a ``LineServer``.
final class LineServerSession: MockLine {
    typealias Reaction = LineServer.Reaction

    /// The server; nil once the connection is closed, so that a reference to a connection does not keep the server.
    private var core: LineServerCore?
    private let delimiter: LineDelimiter
    /// Without a limit, so that everything that can be read is recorded.
    private var decoder: LineDecoder
    private lazy var script = MockScript<Reaction.Sending, LineServer.Received>(
        self,
        send: { [unowned self] in self.send($0, for: $1) }
    )

    init(core: LineServerCore, port: MockPort) {
        self.core = core
        self.delimiter = core.delimiter
        self.decoder = LineDecoder(delimiter: core.delimiter, maximumLength: .max)
        super.init(port: port)
    }

    override func begin() {
        if let core = self.core { self.perform(core.add(self), for: nil) }
    }

    override func leave() {
        self.core = nil
    }

    override func receive(_ bytes: ByteBuffer) {
        self.decoder.append(bytes)
        self.goOnReading()
    }

    override func goOnReading() {
        while self.isReading, let core = self.core, let bytes = try? self.decoder.next() {
            let line = LineServer.Received(connection: self.number, bytes: bytes)
            core.received.append(line)
            self.perform(core.reaction(to: line), for: line)
        }
        self.flush()
    }

    func perform(_ reaction: Reaction, for received: LineServer.Received?) {
        self.script.perform(reaction.steps, for: received)
    }

    private func send(_ sending: Reaction.Sending, for received: LineServer.Received?) {
        var bytes: ByteBuffer
        switch sending.source {
        case .raw(let raw):
            bytes = raw
        case .line(let line):
            bytes = line
            bytes.writeBytes(self.delimiter.bytes)
        case .echo:
            guard let line = received?.bytes else { return }
            bytes = line
            bytes.writeBytes(self.delimiter.bytes)
        }
        if let kept = sending.keptBytes {
            bytes = bytes.getSlice(at: bytes.readerIndex, length: min(max(0, kept), bytes.readableBytes)) ?? bytes
        }
        self.send(bytes.repeated(sending.copies), sending.dribble)
    }
}
