// SPDX-License-Identifier: Apache-2.0
public import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// A server of WebSocket messages for tests, over real TCP on 127.0.0.1, which does what the test specifies, valid or
/// not.
///
/// ```swift
/// let server = try await MockWebSocketServer(.echo)
/// server.on("how are you?", .text("fine"))
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
/// ``MockPeer`` lists its functions, and ``MockReaction`` its reactions. The server ends with ``MockPeer/shutdown()``,
/// or when the last reference to it is released.
public typealias MockWebSocketServer = MockPeer<MessageWire>

extension MockPeer where Wire == MessageWire {
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
    ///   - seed: The seed of ``MockReaction/oneOf(_:)`` and ``MockReleaseOrder/shuffled``; 0 by default.
    ///   - clock: The clock of delays; with a ``VirtualClock`` they wait only for the test. Real time by default.
    ///
    /// - Throws: NIO's error if the port is in use; ``/HHSocket/SocketError`` with code `invalidArgument` for invalid
    ///   subprotocols.
    public convenience init(
        _ reaction: Reaction = .drop,
        path: String? = nil,
        subprotocols: [String] = [],
        compression: WebSocketCompression? = nil,
        port: Int = 0,
        seed: UInt64 = 0,
        clock: some Clock<Duration> = ContinuousClock()
    ) async throws {
        let openings = try MockOpenings(path, subprotocols, compression: compression, mode: .unlimitedMessages)
        let mock = MockPort(seed: seed, clock: clock)
        try await self.init(MessageWire(compression), openings: openings, on: mock, port: port, other: reaction) {
            MockMessageSession(parts: $0, port: $1)
        }
    }

    // MARK: Rules

    /// Sets the reaction to pings: a pong with the ping's payload by default. With `.drop` none is answered.
    public func onPing(_ reaction: Reaction) { self.parts.wire.rules.withLockedValue { $0.ping = reaction } }

    /// Sets the reaction to close frames. By default one with the client's code, unless the server has sent one before,
    /// and then the end of TCP. With `.drop` none is answered.
    public func onClose(_ reaction: Reaction) { self.parts.wire.rules.withLockedValue { $0.close = reaction } }

    // MARK: What came

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
    package func received(
        _ count: Int,
        _ what: String,
        onConnection number: Int? = nil,
        within time: Duration = .seconds(60),
        where matches: @escaping @Sendable (WebSocketContent) -> Bool
    ) async throws -> [Received] {
        try await self.parts.received.wait(count, within: time, what) {
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
}
