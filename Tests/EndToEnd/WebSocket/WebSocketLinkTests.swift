// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketServer
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// Messages over WebSocket, between our link and our server.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct WebSocketLinkTests {
    /// The messages of a server's connections, and their ends.
    private final class Seen: Sendable {
        private let state = NIOLockedValueBox<(texts: [String], connections: Int, ended: Int)>(([], 0, 0))

        func began() { self.state.withLockedValue { $0.connections += 1 } }
        func ended() { self.state.withLockedValue { $0.ended += 1 } }
        func took(_ message: WebSocketMessage) {
            self.state.withLockedValue { $0.texts.append(message.text ?? "\(message.payload.readableBytes) bytes") }
        }

        var texts: [String] { self.state.withLockedValue { $0.texts } }
        var connections: Int { self.state.withLockedValue { $0.connections } }
        var ends: Int { self.state.withLockedValue { $0.ended } }
    }

    /// Starts a server that echoes, and obeys the texts `close CODE REASON` and `throw`.
    private func server(
        port: Int = 0,
        _ seen: Seen,
        options: WebSocketRouteOptions = WebSocketRouteOptions()
    ) async throws -> SocketServer {
        var listener = ServerListener(port: port)
        listener.webSocket = WebSocketListening(path: nil)
        let server = SocketServer(configuration: .init(listeners: [listener]), router: Router())
        try server.webSocket("/chat", options: options) { connection in
            seen.began()
            defer { seen.ended() }
            for await message in connection.messages {
                seen.took(message)
                let words = (message.text ?? "").split(separator: " ", maxSplits: 2)
                switch words.first {
                case "close":
                    connection.close(code: UInt16(words[1]) ?? 0, reason: words.count > 2 ? String(words[2]) : "")
                case "throw":
                    throw SocketError(.noData, message: "asked for")
                default:
                    try await connection.send(message)
                }
            }
        }
        try await server.start()
        return server
    }

    /// Returns a port on which nothing listens.
    private func freePort() async throws -> Int {
        let listener = try await ByteServer { _, _ in ByteBuffer() }
        try await listener.close()
        return listener.endpoint.port
    }

    private func link(
        _ port: Int,
        _ configure: (inout WebSocketLink.Configuration) -> Void = { _ in }
    ) throws -> WebSocketLink {
        var configuration = try WebSocketLink.Configuration(url: "ws://127.0.0.1:\(port)/chat")
        configuration.socket.backoff = Backoff(base: .milliseconds(20), cap: .milliseconds(50))
        configuration.socket.networkMonitor = nil
        configure(&configuration)
        return WebSocketLink(configuration: configuration)
    }

    private func with(
        options: WebSocketRouteOptions = WebSocketRouteOptions(),
        _ configure: (inout WebSocketLink.Configuration) -> Void = { _ in },
        _ body: (WebSocketLink, SocketServer, Seen) async throws -> Void
    ) async throws {
        let seen = Seen()
        let server = try await self.server(seen, options: options)
        let link = try self.link(try #require(server.address).port, configure)
        let result = await Result { try await body(link, server, seen) }
        link.disconnect()
        await server.shutdown(gracePeriod: .zero)
        try result.get()
    }

    private func next(_ messages: inout WebSocketMessages.AsyncIterator) async throws -> WebSocketMessage {
        guard let message = await messages.next(isolation: #isolation) else { throw Unexpected(description: "the end") }
        return message
    }

    private func closure(_ events: AsyncStream<WebSocketLink.Event>) async throws -> WebSocketLink.Closure {
        let event = try await first(of: events, "the end of a connection") {
            if case .closed = $0 { true } else { false }
        }
        guard case .closed(let closure) = event else { throw Unexpected(description: "\(event)") }
        return closure
    }

    @Test(arguments: [false, true]) func messagesOfAllSizesAreEchoed(isCompressed: Bool) async throws {
        var options = WebSocketRouteOptions()
        options.subprotocols = ["b", "a"]
        if isCompressed { options.compression = WebSocketCompression() }
        try await self.with(options: options) {
            $0.subprotocols = ["a", "b"]
            if isCompressed { $0.compression = WebSocketCompression() }
        } _: { link, _, _ in
            let events = link.events
            link.connect()
            let opened = try await first(of: events, "the opening") { if case .opened = $0 { true } else { false } }
            guard case .opened(_, let subprotocol, let headers) = opened else { return }
            #expect(subprotocol == "a")
            #expect(headers.contains { $0.name == "Sec-WebSocket-Extensions" } == isCompressed)
            var messages = link.messages.makeAsyncIterator()
            for length in [0, 1, 125, 126, 255, 256, 65_535, 65_536, 65_537, 1 << 20] {
                let text = String(repeating: "ä", count: length / 2) + String(repeating: "x", count: length % 2)
                try await link.send(WebSocketMessage(text))
                #expect(try await self.next(&messages).text == text)
                let bytes = (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 31) }
                try await link.send(WebSocketMessage(bytes))
                let echo = try await self.next(&messages)
                #expect(echo.kind == .binary && Array(echo.payload.readableBytesView) == bytes)
            }
            for number in 0..<1_000 { link.send(WebSocketMessage("\(number)"), completion: nil) }
            for number in 0..<1_000 { #expect(try await self.next(&messages).text == "\(number)") }
            #expect(try await link.ping(ByteBuffer(string: "there")) >= .zero)
        }
    }

    @Test func messagesSentWhileConnectingAreSentInOrderAfterTheOpening() async throws {
        let seen = Seen()
        let port = try await self.freePort()
        let link = try self.link(port)
        link.connect()
        // A second call during the first attempt has no effect.
        link.connect()
        let outcomes = NIOLockedValueBox<[Bool]>([])
        for number in 0..<100 {
            link.send(WebSocketMessage("\(number)")) { result in
                outcomes.withLockedValue { $0.append((try? result.get()) != nil) }
            }
        }
        let cancelled = Task { try await link.send(WebSocketMessage("never")) }
        cancelled.cancel()
        let error = await #expect(throws: SocketError.self) { try await cancelled.value }
        #expect(error?.code == .cancelled)
        let server = try await self.server(port: port, seen)
        try await eventually("all messages") { seen.texts.count == 100 }
        #expect(seen.texts == (0..<100).map { "\($0)" })
        #expect(seen.connections == 1)
        try await eventually("all outcomes") { outcomes.withLockedValue { $0.count } == 100 }
        #expect(outcomes.withLockedValue { $0.allSatisfy { $0 } })
        link.disconnect()
        await server.shutdown(gracePeriod: .zero)
    }

    @Test func usersCloseIsCleanComesLastAndNeverReconnects() async throws {
        try await self.with { link, _, seen in
            let events = link.events
            link.connect()
            for number in 0..<50 { link.send(WebSocketMessage("\(number)"), completion: nil) }
            try await link.send(WebSocketMessage("last"))
            try link.disconnect(code: 4_000, reason: "enough")
            let closure = try await self.closure(events)
            #expect(closure.code == 4_000 && closure.reason == "enough" && closure.wasClean && closure.error == nil)
            await link.waitUntilClosed()
            try await eventually("the end of the handler") { seen.ends == 1 }
            #expect(seen.texts.last == "last" && seen.texts.count == 51)
            #expect({ if case .closed = link.state { true } else { false } }())
            let error = await #expect(throws: SocketError.self) { try await link.send(WebSocketMessage("x")) }
            #expect(error?.code == .notConnected)
            link.connect()
            try await link.send(WebSocketMessage("again"))
            try await eventually("the second connection") { seen.texts.last == "again" }
            #expect(seen.connections == 2)
        }
    }

    @Test(arguments: [
        (1_000, true), (1_001, true), (1_011, true), (1_012, true), (4_000, true), (1_008, false), (3_500, false),
        (4_999, false),
    ])
    func serversCodeDecidesWhetherTheLinkReconnects(code: Int, reconnects: Bool) async throws {
        try await self.with { link, _, seen in
            let events = link.events
            let ends = link.events
            link.connect()
            try await link.send(WebSocketMessage("close \(code) because"))
            let closure = try await self.closure(events)
            #expect(Int(closure.code) == code && closure.reason == "because" && closure.wasClean)
            if reconnects {
                try await link.send(WebSocketMessage("more"))
                try await eventually("the next connection") { seen.connections == 2 && seen.texts.last == "more" }
            } else {
                let gaveUp = try await first(of: ends, "the end") {
                    if case .connection(.gaveUp) = $0 { true } else { false }
                }
                guard case .connection(.gaveUp(let error)) = gaveUp else { return }
                #expect(error.underlying as? WebSocketClosure == closure.error?.underlying as? WebSocketClosure)
                #expect(seen.connections == 1)
            }
        }
    }

    @Test func handlerThatThrowsClosesWith1011() async throws {
        try await self.with { link, _, _ in
            let events = link.events
            link.connect()
            try await link.send(WebSocketMessage("throw"))
            #expect(try await self.closure(events).code == 1_011)
        }
    }

    @Test func drainingServerClosesWith1001() async throws {
        try await self.with { link, server, _ in
            let events = link.events
            link.connect()
            try await link.send(WebSocketMessage("hello"))
            await server.shutdown()
            #expect(try await self.closure(events).code == 1_001)
        }
    }

    @Test func messageOverTheLimitClosesWith1009() async throws {
        var options = WebSocketRouteOptions()
        options.maximumMessageLength = 1_000
        try await self.with(options: options) { link, _, _ in
            let events = link.events
            link.connect()
            try await link.send(WebSocketMessage(String(repeating: "x", count: 1_001)))
            #expect(try await self.closure(events).code == 1_009)
        }
    }

    @Test func wrongArgumentsAreRefused() async throws {
        #expect(throws: SocketError.self) { try WebSocketLink.Configuration(url: "http://a/") }
        #expect(throws: SocketError.self) { try WebSocketLink.Configuration(url: "ws://a/#b") }
        try await self.with { link, _, _ in
            for (code, reason) in [(999, ""), (1_001, ""), (5_000, ""), (1_000, String(repeating: "x", count: 124))] {
                let error = #expect(throws: SocketError.self) {
                    try link.disconnect(code: UInt16(code), reason: reason)
                }
                #expect(error?.code == .invalidArgument)
            }
            link.connect()
            let error = await #expect(throws: SocketError.self) {
                try await link.send(WebSocketMessage(.text, ByteBuffer(bytes: [0xFF])))
            }
            #expect(error?.code == .invalidArgument)
            // No message is lost.
            try await link.send(WebSocketMessage("hello"))
        }
    }

    @Test func waitingIsBounded() async throws {
        let link = try self.link(try await self.freePort()) { $0.maximumWaitingMessages = 3 }
        link.connect()
        let refused = NIOLockedValueBox(0)
        for number in 0..<5 {
            link.send(WebSocketMessage("\(number)")) { result in
                guard case .failure(let error) = result, error.code == .queueFull else { return }
                refused.withLockedValue { $0 += 1 }
            }
        }
        try await eventually("two refusals") { refused.withLockedValue { $0 } == 2 }
        link.disconnect()
    }

    @Test func heartbeatMayBeAMessage() async throws {
        try await self.with {
            $0.socket.heartbeat = HeartbeatPolicy(interval: .milliseconds(30))
            $0.heartbeatMessage = { WebSocketMessage("heart") }
        } _: { link, _, seen in
            link.connect()
            try await eventually("two heartbeats") { seen.texts.filter { $0 == "heart" }.count >= 2 }
        }
    }

    @Test func silentServerIsTakenForDeadAndPongsAreLife() async throws {
        // Answers the opening, and nothing else.
        let mute = try await MockWebSocketServer()
        mute.onPing(.drop)
        let heartbeat = HeartbeatPolicy(interval: .milliseconds(30), replyTimeout: .milliseconds(30), misses: 0)
        let link = try self.link(mute.endpoint.port) { $0.socket.heartbeat = heartbeat }
        link.connect()
        try await mute.connection(1)
        link.disconnect()
        try await self.with {
            $0.socket.heartbeat = HeartbeatPolicy(interval: .milliseconds(20))
        } _: { link, _, seen in
            link.connect()
            try await link.send(WebSocketMessage("hello"))
            for _ in 0..<10 { _ = try await link.ping() }
            #expect(seen.connections == 1)
        }
    }

    @Test func synchronousHandlersEchoOnBothSides() async throws {
        var listener = ServerListener()
        listener.webSocket = WebSocketListening(path: nil)
        let server = SocketServer(configuration: .init(listeners: [listener]), router: Router())
        try server.webSocket(nil, onMessage: { message, connection in connection.post(message) })
        try await server.start()
        let link = try self.link(try #require(server.address).port)
        let count = NIOLockedValueBox(0)
        link.setMessageHandler { [weak link] message in
            let number = count.withLockedValue { count in
                count += 1
                return count
            }
            if number < 10_000 { link?.send(message, completion: nil) }
        }
        link.connect()
        for _ in 0..<16 { link.send(WebSocketMessage("ball"), completion: nil) }
        try await eventually("many bounces") { count.withLockedValue { $0 } >= 10_000 }
        link.disconnect()
        await server.shutdown(gracePeriod: .zero)
    }

    @Test func messageThatIsBeingSentWhenTheConnectionIsLostFailsAndTheRestIsSentOnce() async throws {
        // Reads the opening and then nothing, and ends the first connection.
        let seen = Seen()
        let port = try await self.freePort()
        let deaf = try await DeafWebSocketServer(port: port)
        let link = try self.link(port)
        link.connect()
        let big = WebSocketMessage(ByteBuffer(repeating: 7, count: 32 << 20).readableBytesView)
        let bigOutcome = NIOLockedValueBox<SocketError?>(nil)
        link.send(big) { if case .failure(let error) = $0 { bigOutcome.withLockedValue { $0 = error } } }
        link.send(WebSocketMessage("after"), completion: nil)
        try await eventually("the first bytes") { deaf.received > 100_000 }
        try await deaf.close()
        try await eventually("the failure") { bigOutcome.withLockedValue { $0 } != nil }
        #expect(bigOutcome.withLockedValue { $0?.delivery } == .sentUnknown)
        let server = try await self.server(port: port, seen)
        try await eventually("the message after it") { seen.texts == ["after"] }
        link.disconnect()
        await server.shutdown(gracePeriod: .zero)
    }
}
