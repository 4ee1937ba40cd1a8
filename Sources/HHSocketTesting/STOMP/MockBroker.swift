// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import HHSocketSTOMP
public import NIOCore
import NIOSSL

/// A STOMP broker for tests, over real TCP or WebSocket on 127.0.0.1, which behaves like a strict broker unless the
/// test specifies otherwise.
///
/// ```swift
/// let broker = try await MockBroker()
/// try await broker.publish("hello", to: "/queue/greetings")
/// // ... a client connects to broker.endpoint, and subscribes to the queue ...
/// #expect(try await broker.received(1, .subscribe)[0].frame.headers["destination"] == "/queue/greetings")
/// try await broker.received(1, .ack)
/// #expect(broker.messages(in: "/queue/greetings").isEmpty)
/// ```
///
/// A fault that occurs once:
///
/// ```swift
/// broker.once(.send, .handleWithoutReceipt)                  // it arrived, but the sender does not know
/// broker.once(.subscribe, .error("no permission"))
/// broker.once(.send, .reset)
/// broker.once(.connect, .handle.delayed(by: .seconds(2)))
/// ```
///
/// The behaviour of the broker:
///
/// - `/queue/…` keeps each message until one of its consumers, which take turns, has acknowledged it; `/topic/…` copies
///   it to all current subscribers.
/// - Subscriptions have the modes `auto`, `client` and `client-individual`, and `prefetch-count`. NACK returns a
///   message to the front of its queue; so do the end of a connection and UNSUBSCRIBE. Redelivered messages have
///   the header `redelivered:true`.
/// - Transactions hold SEND, ACK and NACK back until COMMIT. The end of the connection aborts them.
/// - Everything that the specification forbids or does not mention is answered with ERROR and the end of the
///   connection: missing headers, unknown destinations, ids in use, and acknowledgements of messages that do not wait
///   for one.
///
/// ``MockPeer`` lists its functions, and ``MockReaction`` its reactions. The broker ends with ``MockPeer/shutdown()``,
/// or when the last reference to it is released.
public typealias MockBroker = MockPeer<STOMPWire>

extension MockPeer where Wire == STOMPWire {
    /// The URL, which begins with `stomp://`, `stomps://`, `ws://` or `wss://`.
    public var url: String {
        guard self.parts.openings == nil else { return "\(self.endpoint)" }
        return "\(self.parts.port.isSecure ? "stomps" : "stomp")://\(self.endpoint)"
    }

    /// Creates a broker that listens.
    ///
    /// - Parameters:
    ///   - configuration: Its versions, logins, heart-beats and limits.
    ///   - path: The path of a WebSocket that carries the frames, such as `/ws`; nil, the default, for plain TCP.
    ///   - identity: Its certificate and key, for TLS; nil, the default, for none.
    ///   - port: The TCP port on 127.0.0.1; 0, the default, picks a free one.
    ///   - seed: The seed of ``MockReaction/oneOf(_:)`` and ``MockReleaseOrder/shuffled``; 0 by default.
    ///   - clock: The clock of delays and heart-beats; with a ``VirtualClock`` they wait only for the test. Real time
    ///     by default.
    /// - Throws: NIO's error if the port is in use, ``/HHSocket/SocketError`` for an identity that cannot be read.
    public convenience init(
        configuration: Configuration = Configuration(),
        webSocket path: String? = nil,
        identity: TLSIdentity? = nil,
        port: Int = 0,
        seed: UInt64 = 0,
        clock: some Clock<Duration> = ContinuousClock()
    ) async throws {
        try await self.init(
            configuration: configuration,
            carriedBy: path.map { WebSocket(path: $0) },
            identity: identity,
            port: port,
            seed: seed,
            clock: clock
        )
    }

    /// Creates a broker with options of the WebSocket that carries the frames.
    package convenience init(
        configuration: Configuration = Configuration(),
        carriedBy webSocket: WebSocket?,
        identity: TLSIdentity? = nil,
        port: Int = 0,
        seed: UInt64 = 0,
        clock: some Clock<Duration> = ContinuousClock()
    ) async throws {
        let tls = try identity.map { try Self.context($0) }
        let mock = MockPort(seed: seed, tls: tls, clock: clock)
        let subprotocols = configuration.versions.sorted(by: >).map(\.webSocketSubprotocol)
        let openings = try webSocket.map {
            try MockOpenings($0.path, subprotocols, mode: .unlimitedMessages, sendsText: $0.sendsText)
        }
        let wire = STOMPWire(configuration, webSocket, on: mock.loop)
        try await self.init(wire, openings: openings, on: mock, port: port, other: .handle) {
            MockSTOMPSession(parts: $0, port: $1)
        }
    }

    private static func context(_ identity: TLSIdentity) throws -> NIOSSLContext {
        let identity = try identity.load()
        return try NIOSSLContext(
            configuration: .makeServerConfiguration(
                certificateChain: identity.chain.map { .certificate($0) },
                privateKey: .privateKey(identity.key)
            )
        )
    }

    // MARK: Now

    /// Sends a message to a destination, as a client would. Returns when it has been queued or sent.
    ///
    /// - Parameters:
    ///   - body: The body.
    ///   - destination: `/queue/…` or `/topic/…`.
    ///   - headers: Further headers that receivers see; none by default.
    ///
    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument` for an invalid destination.
    public func publish(_ body: ByteBuffer, to destination: String, headers: STOMPHeaders = [:]) async throws {
        let (wire, loop) = (self.parts.wire, self.parts.port.loop)
        let hasBegun = try await loop.submit { wire.publish(body, to: destination, headers: headers) }.get()
        guard hasBegun else {
            throw SocketError.invalid("\(destination) is not a destination: it is neither /queue/… nor /topic/…")
        }
    }

    /// Sends a message of text to a destination, as a client would.
    public func publish(_ text: String, to destination: String, headers: STOMPHeaders = [:]) async throws {
        try await self.publish(ByteBuffer(string: text), to: destination, headers: headers)
    }

    // MARK: What there is

    /// The messages that wait in a queue for a consumer, in their order. Those that are delivered and not acknowledged
    /// are not among them.
    public func messages(in queue: String) -> [STOMPFrame] { self.parts.wire.read { $0.messages(in: queue) } }

    /// The subscriptions of a connection, in the order in which they were made.
    public func subscriptions(onConnection number: Int) -> [Subscription] {
        self.parts.wire.read { $0.subscriptions(of: number) }
    }

    /// The names of the open transactions of a connection, in alphabetical order.
    package func transactions(onConnection number: Int) -> [String] {
        self.parts.wire.read { $0.transactions(of: number) }
    }

    // MARK: What came

    /// The frames that were received on one connection, in order.
    package func received(onConnection number: Int) -> [STOMPFrame] {
        self.parts.received.events.filter { $0.connection == number }.map(\.frame)
    }

    /// Returns the first `count` frames with a command, or of any, waiting for those that have not arrived yet.
    ///
    /// - Parameters:
    ///   - count: The number of frames to wait for.
    ///   - command: The command; nil, the default, counts all frames.
    ///   - number: The number of the connection; nil, the default, counts all connections.
    ///   - time: The time to wait; 60 s by default.
    ///
    /// - Throws: ``NothingHappened`` if they do not arrive in time; it describes what arrived.
    @discardableResult
    public func received(
        _ count: Int,
        _ command: STOMPCommand? = nil,
        onConnection number: Int? = nil,
        within time: Duration = .seconds(60)
    ) async throws -> [Received] {
        let what = "\(count) \(command.map { "frames \($0)" } ?? "frames")"
        return try await self.parts.received.wait(count, within: time, what) {
            (command == nil || $0.frame.command == command) && (number == nil || $0.connection == number)
        }
    }

    /// Returns once `count` heart-beats, which are line ends between frames, have arrived on a connection.
    ///
    /// - Throws: ``NothingHappened`` if they do not arrive in time, 60 s by default.
    package func receivedHeartBeats(
        _ count: Int,
        onConnection number: Int = 0,
        within time: Duration = .seconds(60)
    ) async throws {
        try await self.parts.wire.beats.wait(count, within: time, "\(count) heart-beats") { $0 == number }
    }

    /// Returns the first error on a connection: in a received frame, in the use of WebSocket, or in a frame that a
    /// reaction should send.
    ///
    /// - Throws: ``NothingHappened`` if there is none in time, 60 s by default.
    @discardableResult
    package func violation(onConnection number: Int = 0, within time: Duration = .seconds(60)) async throws -> String {
        try await self.parts.wire.violations.wait(1, within: time, "a violation") { $0.connection == number }[0].text
    }
}
