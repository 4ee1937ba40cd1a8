import DequeModule
public import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// A server for tests: real TCP on 127.0.0.1, and it does what the test says, right or wrong.
///
/// Answers by type, and a look at what came:
/// ```swift
/// let server = try await MockServer()
/// server.on(101, .answer("hello"))
///
/// let client = SocketClient(configuration: .init(servers: [server.endpoint]))
/// client.connect()
/// #expect(try await client.data(for: SocketRequest(type: 101, body: "hi")).string == "hello")
/// #expect(try await server.received(1, ofType: 101)[0].string == "hi")
/// ```
///
/// Something goes wrong once, and then all is well:
/// ```swift
/// server.once(101, .echo.cut(after: 10).then(.reset))   // in the middle of the answer
/// server.on(101, .echo)
/// ```
///
/// Answers out of order, a push between them, all in one write:
/// ```swift
/// server.on(101, .echo.held(until: 3, release: .reversed))
/// server.on(102, .glued(.push(2001, "news"), .echo))
/// ```
///
/// A request of a type without a rule is answered 401, a heartbeat as the protocol says, and a cancel not at all; `on`
/// changes that too. Rules can be changed at any time, and a rule holds for every request that comes after the call has
/// returned. Chance is seeded and time is that of a clock, so that what happened once happens again.
///
/// The server ends with ``shutdown()`` or with the last reference to it.
public final class MockServer: Sendable {
    let core: MockServerCore

    /// Where it listens.
    public var endpoint: Endpoint { self.core.endpoint }

    /// A server that listens.
    ///
    /// - Parameters:
    ///   - reaction: What to do about requests of the application's types that have no rule of their own. Status 401 by
    ///     default; `MockServer(.echo)` is an echo server.
    ///   - format: How frames are laid out; the standard format by default. An answer repeats the custom fields of its
    ///     request that the response has too.
    ///   - port: The TCP port on 127.0.0.1; 0, the default, takes a free one.
    ///   - seed: What ``Reaction/oneOf(_:)`` and ``ReleaseOrder/shuffled`` are drawn with; 0 by default.
    ///   - clock: What delays are measured with: a ``VirtualClock`` waits for nothing but the test. The real time by
    ///     default.
    /// - Throws: NIO's error when the port is taken.
    public init(
        _ reaction: Reaction = .status(.undefinedType),
        format: WireFormat = .standard,
        port: Int = 0,
        seed: UInt64 = 0,
        clock: some Clock<Duration> = ContinuousClock()
    ) async throws {
        self.core = MockServerCore(format: format, seed: seed) { try await clock.sleep(for: $0) }
        self.onAnyOther(reaction)
        try await self.core.start(port: port)
    }

    deinit {
        _ = self.core.shutdown()
    }

    /// Closes the port and every connection, and returns when they are closed.
    public func shutdown() async {
        try? await self.core.shutdown().get()
    }

    // MARK: Rules

    /// What to do about every request of `type` from now on; also for the control types.
    public func on(_ type: UInt32, _ reaction: Reaction) {
        self.core.rules.withLockedValue { $0.standing[type] = reaction }
    }

    /// What to do about the next request of `type` alone, before the standing rule holds again. Several calls stand in
    /// line.
    public func once(_ type: UInt32, _ reaction: Reaction) {
        self.core.rules.withLockedValue { $0.once[type, default: []].append(reaction) }
    }

    /// What to do about requests of the application's types that have no rule of their own. Status 401 by default.
    public func onAnyOther(_ reaction: Reaction) {
        self.core.rules.withLockedValue { $0.other = reaction }
    }

    /// From now on answers hello as a server does that speaks version 1 and accepts these features, and reads metadata
    /// and compressed bodies on connections that have agreed on them. Without it hello is not answered.
    ///
    /// A rule for type 3 comes before it: `on(3, .status(.undefinedType))` is a server that refuses hello.
    ///
    /// - Parameter features: What is accepted; all that there is by default.
    public func acceptHello(features: Set<ProtocolFeature> = [.metadata, .compression, .idempotency]) {
        self.core.rules.withLockedValue { $0.features = features }
    }

    /// What to do with each new connection. Nothing by default.
    public func onConnect(_ reaction: Reaction) {
        self.core.rules.withLockedValue { $0.connect = reaction }
    }

    /// What to do with the connection of this number, counted from 0, when it is new; instead of the general rule.
    public func onConnect(number: Int, _ reaction: Reaction) {
        self.core.rules.withLockedValue { $0.connectByNumber[number] = reaction }
    }

    // MARK: Now

    /// The connections open now, in the order in which they were accepted.
    public var connections: [Connection] { self.core.openConnections }

    /// Does this now on every open connection. Returns when it has begun.
    public func perform(_ reaction: Reaction) async {
        for connection in self.connections { await connection.perform(reaction) }
    }

    /// Tells the client of every open connection that this server is about to end. Connections stay open; what becomes
    /// of further requests is for the rules to say, such as `onAnyOther(.draining)`. Returns when the frames have been
    /// sent. In a format whose applications use the type 4 themselves it means nothing to clients.
    ///
    /// - Parameters:
    ///   - reason: For people to read; empty by default.
    ///   - retryAfter: How long clients should stay away, in whole milliseconds; not at all by default.
    ///   - endpoints: Servers that may be used instead, best first; none by default.
    public func sendGoAway(
        reason: String = "",
        retryAfter: Duration = .zero,
        endpoints: [Endpoint] = []
    ) async {
        await self.perform(.goAway(reason: reason, retryAfter: retryAfter, endpoints: endpoints))
    }

    /// Stops listening, so that connecting is refused, until ``acceptConnections()``. Open connections stay.
    public func refuseConnections() async throws {
        try await self.core.stopListening().get()
    }

    /// Stops listening for this time, by the server's clock. Returns when connecting is refused.
    public func refuseConnections(for duration: Duration) async throws {
        try await self.refuseConnections()
        self.core.after(duration) { [weak core] in _ = core?.listen() }
    }

    /// Listens again, on the same port.
    ///
    /// - Throws: NIO's error when somebody else has taken the port meanwhile.
    public func acceptConnections() async throws {
        try await self.core.listen().get()
    }

    // MARK: What came

    /// Every frame that has come, in order; also the control frames.
    public var received: [Received] { self.core.received.events }

    /// The first `count` frames of `type`, or of any, waiting for those that have not come yet.
    ///
    /// - Parameters:
    ///   - count: How many.
    ///   - type: Nil counts all, also the control frames.
    ///   - number: The connection; nil, the default, counts all.
    ///   - time: How long to wait; 60 s by default.
    /// - Throws: ``NothingHappened`` when they do not come in time; it says what came.
    @discardableResult
    public func received(
        _ count: Int,
        ofType type: UInt32? = nil,
        onConnection number: Int? = nil,
        within time: Duration = .seconds(60)
    ) async throws -> [Received] {
        let what = "\(count) frames" + (type.map { " of type \($0)" } ?? "")
        return try await self.core.received.wait(count, within: time, what) {
            (type == nil || $0.type == type) && (number == nil || $0.connection == number)
        }
    }

    /// How many connections were accepted so far.
    public var acceptedCount: Int { self.core.accepted.events.count }

    /// The connection of this number, counted from 0, waiting until it has been accepted.
    ///
    /// - Throws: ``NothingHappened`` when it is not accepted in time, 60 s by default.
    @discardableResult
    public func connection(_ number: Int, within time: Duration = .seconds(60)) async throws -> Connection {
        let found = try await self.core.accepted.wait(1, within: time, "connection \(number)") { $0.number == number }
        return found[0]
    }

    /// Returns once the client has closed, reset or half-closed the connection of this number.
    ///
    /// - Throws: ``NothingHappened`` when that does not happen in time, 60 s by default.
    public func ended(connection number: Int, within time: Duration = .seconds(60)) async throws {
        try await self.core.ended.wait(1, within: time, "the end of connection \(number)") { $0 == number }
    }

    /// A port of 127.0.0.1 where nothing listens, and nothing will as long as the process runs.
    public static func closedEndpoint() async throws -> Endpoint {
        let server = try await MockServer()
        await server.shutdown()
        if let reservation = PortReservation(port: server.endpoint.port) {
            Self.reservations.withLockedValue { $0.append(reservation) }
        }
        return server.endpoint
    }

    private static let reservations = NIOLockedValueBox<[PortReservation]>([])
}

extension MockServer {
    /// One accepted connection.
    public struct Connection: Sendable, CustomStringConvertible {
        /// Counted from 0 in the order in which they were accepted.
        public let number: Int
        let session: NIOLoopBound<MockSession>

        /// Does this now. Returns when it has begun; on a connection that is over nothing happens.
        public func perform(_ reaction: Reaction) async {
            let session = self.session
            try? await session.eventLoop.submit { session.value.perform(reaction, for: nil) }.get()
        }

        public var description: String { "connection \(self.number)" }
    }
}
