// SPDX-License-Identifier: Apache-2.0
public import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// A server for tests, over real TCP on 127.0.0.1, which does what the test specifies, valid or not.
///
/// Answers by type, and a check of the requests received:
///
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
/// A failure that happens once:
///
/// ```swift
/// server.once(101, .echo.cut(after: 10).then(.reset))   // in the middle of the answer
/// server.on(101, .echo)
/// ```
///
/// Answers out of order, a push between them, all in one write:
///
/// ```swift
/// server.on(101, .echo.held(until: 3, release: .reversed))
/// server.on(102, .glued(.push(2001, "news"), .echo))
/// ```
///
/// A request of a type without a rule is answered with status 401, a heartbeat as the protocol specifies, and a cancel
/// not at all; `on` changes that too.
///
/// ``MockPeer`` lists its functions, and ``MockReaction`` its reactions. The server ends with ``MockPeer/shutdown()``,
/// or when the last reference to it is released.
public typealias MockServer = MockPeer<FrameWire>

extension MockPeer where Wire == FrameWire {
    /// Creates a server that listens.
    ///
    /// - Parameters:
    ///   - reaction: The reaction to requests of the application's types without a rule. Status 401 by default;
    ///     `MockServer(.echo)` is an echo server.
    ///   - format: The layout of frames; the standard format by default. An answer repeats the custom fields of its
    ///     request that responses have too.
    ///   - path: The path of a WebSocket that carries the frames, such as `/rpc`; ``MockPeer/endpoint`` is then its
    ///     URL. Nil, the default: frames over plain TCP.
    ///   - port: The TCP port on 127.0.0.1; 0, the default, picks a free one.
    ///   - seed: The seed of ``MockReaction/oneOf(_:)`` and ``MockReleaseOrder/shuffled``; 0 by default.
    ///   - clock: The clock of delays; with a ``VirtualClock`` they wait only for the test. Real time by default.
    /// - Throws: NIO's error if the port is in use.
    public convenience init(
        _ reaction: Reaction = .status(.undefinedType),
        format: WireFormat = .standard,
        webSocket path: String? = nil,
        port: Int = 0,
        seed: UInt64 = 0,
        clock: some Clock<Duration> = ContinuousClock()
    ) async throws {
        let subprotocol = format.subprotocol
        let openings = try path.map {
            try MockOpenings($0, subprotocol.map { [$0] } ?? [], takesAnySubprotocol: subprotocol == nil)
        }
        let mock = MockPort(seed: seed, clock: clock)
        try await self.init(FrameWire(format: format), openings: openings, on: mock, port: port, other: reaction) {
            MockFrameSession(parts: $0, port: $1)
        }
    }

    // MARK: Rules

    /// Answers hello like a server that speaks version 1 and accepts these features, and reads metadata and compressed
    /// bodies on connections that have agreed on them. Without this call hello is not answered.
    ///
    /// A rule for type 3 takes precedence: `on(3, .status(.undefinedType))` is a server that refuses hello.
    ///
    /// ```swift
    /// server.acceptHello(streams: StreamPolicy(streamWindow: 1_000, maximumStreams: 2))
    /// ```
    ///
    /// On a connection with streams, payloads may arrive in pieces. A payload is recorded, and gets its reaction, once
    /// it is complete.
    ///
    /// - Parameters:
    ///   - features: The accepted features; all but streams by default.
    ///   - streams: The windows and the number of streams that are agreed on; its other limits have no effect. Nil, the
    ///     default, for no streams, unless they are among the features.
    public func acceptHello(
        features: Set<ProtocolFeature> = [.metadata, .compression, .idempotency],
        streams: StreamPolicy? = nil
    ) {
        self.parts.wire.rules.withLockedValue { rules in
            rules.features = streams == nil ? features : features.union([.streams])
            rules.streams = streams ?? StreamPolicy()
        }
    }

    /// Sets the reaction to each item of the streams of `type`. Nothing by default; the item is taken in any case.
    public func onItem(of type: UInt32, _ reaction: Reaction) {
        self.parts.wire.rules.withLockedValue { $0.items[type] = reaction }
    }

    /// Sets the reaction to the end of the client's items, on the streams of `type`. Nothing by default.
    public func onItemsEnded(of type: UInt32, _ reaction: Reaction) {
        self.parts.wire.rules.withLockedValue { $0.ends[type] = reaction }
    }

    // MARK: Now

    /// Announces on every open connection that this server is about to end. Connections stay open; the rules decide on
    /// further requests, for example `onAnyOther(.draining)`. Returns when the frames have been sent. In a format whose
    /// applications use type 4 themselves the frame means nothing to clients.
    ///
    /// - Parameters:
    ///   - reason: The reason, as text for people; empty by default.
    ///   - retryAfter: The time that clients should stay away, in whole milliseconds; zero by default.
    ///   - endpoints: Servers that may be used instead, best first; none by default.
    package func sendGoAway(reason: String = "", retryAfter: Duration = .zero, endpoints: [Endpoint] = []) async {
        await self.perform(.goAway(reason: reason, retryAfter: retryAfter, endpoints: endpoints))
    }

    // MARK: What came

    /// Returns the first `count` frames of `type`, or of any type, waiting for those that have not arrived yet.
    ///
    /// - Parameters:
    ///   - count: The number of frames.
    ///   - type: The type; nil, the default, counts all frames, including control frames.
    ///   - number: The number of the connection; nil, the default, counts all connections.
    ///   - time: The time to wait; 60 s by default.
    ///
    /// - Throws: ``NothingHappened`` if they do not arrive in time; it describes what arrived.
    @discardableResult
    public func received(
        _ count: Int,
        ofType type: UInt32? = nil,
        onConnection number: Int? = nil,
        within time: Duration = .seconds(60)
    ) async throws -> [Received] {
        let what = "\(count) frames" + (type.map { " of type \($0)" } ?? "")
        return try await self.parts.received.wait(count, within: time, what) {
            (type == nil || $0.type == type) && (number == nil || $0.connection == number)
        }
    }

    /// Returns the first `count` items of the streams of `type`, waiting for those that have not arrived yet.
    ///
    /// - Parameters:
    ///   - count: The number of items.
    ///   - type: The type of the streams.
    ///   - serial: The serial of the stream; nil, the default, counts those of all.
    ///   - time: The time to wait; 60 s by default.
    ///
    /// - Throws: ``NothingHappened`` if they do not arrive in time; it describes what arrived.
    @discardableResult
    public func receivedItems(
        _ count: Int,
        of type: UInt32,
        serial: UInt32? = nil,
        within time: Duration = .seconds(60)
    ) async throws -> [Received] {
        try await self.parts.received.wait(count, within: time, "\(count) items of streams of type \(type)") {
            $0.type == FrameType.item && $0.streamType == type && (serial == nil || $0.serial == serial)
        }
    }

    /// Returns the close frame, or the violation of RFC 6455, by which the client ended the WebSocket on the connection
    /// with this number.
    ///
    /// - Throws: ``NothingHappened`` if neither arrives in time, 60 s by default.
    @discardableResult
    package func closeFrame(
        onConnection number: Int = 0,
        within time: Duration = .seconds(60)
    ) async throws -> WebSocketContent {
        let frames = self.parts.wire.closeFrames
        return try await frames.wait(1, within: time, "a close frame") { $0.connection == number }[0].content
    }

    /// Returns a port of 127.0.0.1 on which nothing listens, and nothing will while the process runs.
    package static func closedEndpoint() async throws -> Endpoint {
        let server = try await MockServer()
        await server.shutdown()
        if let reservation = PortReservation(port: server.endpoint.port) {
            closedPorts.withLockedValue { $0.append(reservation) }
        }
        return server.endpoint
    }
}

/// The ports that are to stay closed.
private let closedPorts = NIOLockedValueBox<[PortReservation]>([])
