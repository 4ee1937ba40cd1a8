// SPDX-License-Identifier: Apache-2.0
public import HHSocket
import NIOCore

/// A server for tests, over real TCP on 127.0.0.1, which does what the test specifies, valid or not.
///
/// Each wire has its own name for it, and its own initializer: ``MockServer`` for frames, ``MockWebSocketServer`` for
/// messages of WebSockets, ``LineServer`` for lines, and ``MockBroker`` for STOMP.
///
/// Rules can be changed at any time, and apply to everything that arrives after the call has returned. Everything that
/// arrives is recorded, and a test can wait for it. Randomness is seeded and delays follow a clock, so that tests are
/// reproducible.
///
/// The server ends with ``shutdown()`` or when the last reference to it is released.
public final class MockPeer<Wire: MockWire>: Sendable {
    /// A reaction of this server.
    public typealias Reaction = MockReaction<Wire>
    /// Something that this server has received from a client.
    public typealias Received = Wire.Received

    let parts: MockParts<Wire>

    /// The address at which it listens; with WebSocket its URL.
    public var endpoint: Endpoint {
        let address = self.parts.port.endpoint
        guard let openings = self.parts.openings else { return address }
        return Endpoint(address, isSecure: self.parts.port.isSecure, path: openings.path ?? "/")
    }

    /// - Parameters:
    ///   - other: The reaction to everything without a rule.
    ///   - makeSession: Makes the handler of each accepted connection.
    init(
        _ wire: Wire,
        openings: MockOpenings? = nil,
        on mock: MockPort,
        port: Int,
        other: Reaction,
        _ makeSession: @escaping @Sendable (MockParts<Wire>, MockPort) -> MockSession<Wire>
    ) async throws {
        let parts = MockParts(wire, openings: openings, on: mock, other: other)
        self.parts = parts
        try await mock.start(port: port) { [weak parts] port in parts.map { makeSession($0, port) } }
    }

    deinit {
        _ = self.parts.port.shutdown()
    }

    /// Closes the port and every connection, and returns when they are closed. A WebSocket gets no close frame.
    public func shutdown() async { try? await self.parts.port.shutdown().get() }

    // MARK: Rules

    /// Sets the reaction to everything with this key: for ``MockServer`` the type of a request, which may be a control
    /// type; for ``MockWebSocketServer`` and ``LineServer`` the whole text of a message or a line; for ``MockBroker``
    /// the command of a frame.
    public func on(_ key: Wire.Key, _ reaction: Reaction) {
        self.parts.rules.withLockedValue { $0.standing[key] = reaction }
    }

    /// Sets the reaction to the next thing with this key only, before the standing rule applies again. Reactions of
    /// several calls are queued.
    public func once(_ key: Wire.Key, _ reaction: Reaction) {
        self.parts.rules.withLockedValue { $0.once[key, default: []].append(reaction) }
    }

    /// Sets the reaction to new connections, over WebSocket once they are open. Nothing by default. The output of a
    /// ``MockWebSocketServer`` is sent in one write with the answer to the opening, unless that is dribbled.
    ///
    /// - Parameters:
    ///   - number: The number of the connection, counted from 0, that has this reaction instead of the general one.
    ///     Nil, the default, for all others.
    ///   - reaction: The reaction.
    public func onOpen(number: Int? = nil, _ reaction: Reaction) {
        self.parts.rules.withLockedValue {
            if let number { $0.openByNumber[number] = reaction } else { $0.open = reaction }
        }
    }

    /// Sets the reaction to everything without a rule.
    public func onAnyOther(_ reaction: Reaction) { self.parts.rules.withLockedValue { $0.other = reaction } }

    // MARK: Now

    /// The open connections, in the order in which they were accepted; with WebSocket those that have been opened, in
    /// the order of that.
    public var connections: [Connection] {
        let over = Set(self.parts.port.ended.events)
        return self.parts.opened.events.filter { !over.contains($0.number) }
    }

    /// Performs a reaction now on every open connection, including those that clients have opened and that were not
    /// accepted yet. Returns when it has begun.
    public func perform(_ reaction: Reaction) async {
        await self.parts.port.acceptEstablished()
        for connection in self.connections { await connection.perform(reaction) }
    }

    /// Stops listening, so that connecting is refused, until ``acceptConnections()``. Open connections stay.
    public func refuseConnections() async throws { try await self.parts.port.stopListening().get() }

    /// Stops listening for a time, by the server's clock. Returns when connecting is refused.
    package func refuseConnections(for duration: Duration) async throws {
        try await self.parts.port.stopListening(for: duration)
    }

    /// Listens again, on the same port.
    ///
    /// - Throws: NIO's error if another process has taken the port meanwhile.
    public func acceptConnections() async throws { try await self.parts.port.listen().get() }

    // MARK: What came

    /// Everything that was received, in order, including control frames.
    public var received: [Received] { self.parts.received.events }

    /// The number of connections accepted so far, opened or not.
    public var acceptedCount: Int { self.parts.port.accepted.events.count }

    /// Returns the connection with this number, counted from 0, once it has been accepted, and with WebSocket opened.
    ///
    /// - Throws: ``NothingHappened`` if that does not happen in time, 60 s by default.
    @discardableResult
    public func connection(_ number: Int, within time: Duration = .seconds(60)) async throws -> Connection {
        try await self.parts.opened.wait(1, within: time, "connection \(number)") { $0.number == number }[0]
    }

    /// Returns once the connection with this number has ended, at either side, or the client has half-closed it.
    ///
    /// - Throws: ``NothingHappened`` if that does not happen in time, 60 s by default.
    public func ended(connection number: Int, within time: Duration = .seconds(60)) async throws {
        try await self.parts.port.ended.wait(1, within: time, "the end of connection \(number)") { $0 == number }
    }

    /// One accepted connection; with WebSocket an opened one.
    public struct Connection: Sendable, SummarizedEvent {
        /// The connection's number, counted from 0 in the order in which connections were accepted.
        public let number: Int
        let session: NIOLoopBound<MockSession<Wire>>

        /// Performs a reaction now. Returns when it has begun; has no effect on a closed connection.
        public func perform(_ reaction: Reaction) async {
            let session = self.session
            try? await session.eventLoop.submit { session.value.perform(reaction, for: nil) }.get()
        }

        var summary: String { "connection \(self.number)" }
    }
}

extension MockPeer where Wire.Key == String {
    /// Sets the reaction to the next line, or message, that no rule for its text fits. Reactions of several calls are
    /// queued.
    public func once(_ reaction: Reaction) { self.parts.rules.withLockedValue { $0.next.append(reaction) } }
}

extension MockPeer where Wire: WebSocketWire {
    /// Sets the answer to requests to open a WebSocket. ``MockReaction/accept`` by default.
    ///
    /// - Parameters:
    ///   - number: The number of the connection, counted from 0, that has this answer instead of the general one. Nil,
    ///     the default, for all others.
    ///   - answer: The answer.
    public func onOpening(number: Int? = nil, _ answer: MockOpening) {
        self.parts.openings?.set(answer, number: number)
    }

    /// Returns the request to open a WebSocket on the connection with this number, once it has arrived.
    ///
    /// - Throws: ``NothingHappened`` if it does not arrive in time, 60 s by default; immediately over plain TCP.
    @discardableResult
    public func opening(_ number: Int, within time: Duration = .seconds(60)) async throws -> OpeningWire.Received {
        guard let openings = self.parts.openings else {
            throw NothingHappened(description: "the server does not speak WebSocket; give it a path")
        }
        return try await openings.received(number: number, within: time)
    }
}
