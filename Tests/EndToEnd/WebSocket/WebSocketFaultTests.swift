// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// The reactions of our clients to servers that violate WebSocket.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct WebSocketFaultTests {
    /// A fault of a server, and the client's reaction.
    struct Fault: Sendable, CustomTestStringConvertible {
        var reaction: MockWebSocketServer.Reaction
        /// The code of the client's close frame.
        var code: UInt16
        /// A part of the error's message.
        var words: String

        init(_ words: String, _ code: UInt16 = 1_002, _ frames: WebSocketFrame...) {
            self.init(words, code, .glued(frames.map { .frame($0) }))
        }

        init(_ words: String, _ code: UInt16, _ reaction: MockWebSocketServer.Reaction) {
            self.reaction = reaction
            self.code = code
            self.words = words
        }

        var testDescription: String { "\(self.code): \(self.words)" }
    }

    private static let long = ByteBuffer(repeating: 0x61, count: 126)

    static let faults: [Fault] = [
        Fault("is masked", 1_002, .text("x").masked()),
        Fault("reserved bits 1", 1_002, .text("x").reserving(bits: 1)),
        Fault("reserved bits 2", 1_002, .ping().reserving(bits: 2)),
        Fault("reserved bits 4", 1_002, .text("x").compressed()),
        Fault("opcode 3", 1_002, WebSocketFrame(.init(rawValue: 3))),
        Fault("opcode 15", 1_002, WebSocketFrame(.init(rawValue: 15))),
        Fault("longer form", 1_002, .text("x").measured(in: .bits16)),
        Fault("longer form", 1_002, .binary(Self.long).measured(in: .bits64)),
        Fault("top bit", 1_002, .text("x").announcing(length: 1 << 63)),
        Fault("control frame is fragmented", 1_002, .ping().unfinished()),
        Fault("control frame has 126 bytes", 1_002, .pong(Self.long)),
        Fault("belongs to no message", 1_002, .continuation("x")),
        Fault("within another", 1_002, .text("x").unfinished(), .ping(), .text("y")),
        Fault("not UTF-8", 1_007, WebSocketFrame(.text, ByteBuffer(bytes: [0x61, 0xFF]))),
        Fault(
            "not UTF-8",
            1_007,
            WebSocketFrame(.text, ByteBuffer(bytes: [0xE2, 0x82])).unfinished(),
            .continuation("x")
        ),
        Fault("not UTF-8", 1_007, WebSocketFrame(.text, ByteBuffer(bytes: [0xE2, 0x82]))),
        Fault("one byte", 1_002, .close(payload: ByteBuffer(bytes: [3]))),
        Fault("code 999", 1_002, .close(code: 999)),
        Fault("code 1004", 1_002, .close(code: 1_004)),
        Fault("code 1005", 1_002, .close(code: 1_005)),
        Fault("code 1006", 1_002, .close(code: 1_006)),
        Fault("code 1015", 1_002, .close(code: 1_015)),
        Fault("code 2999", 1_002, .close(code: 2_999)),
        Fault("code 5000", 1_002, .close(code: 5_000)),
        Fault("reason of a close frame", 1_007, .close(payload: ByteBuffer(bytes: [0x03, 0xE8, 0xFF]))),
        Fault("the limit is 16777216", 1_009, .binary([]).announcing(length: (16 << 20) + 1)),
        Fault("the limit is 16777216", 1_009, .binary([]).announcing(length: (1 << 63) - 1)),
        Fault(
            "the limit is 16777216",
            1_009,
            .binary(ByteBuffer(repeating: 0, count: 8 << 20)).unfinished(),
            .continuation().announcing(length: (8 << 20) + 1)
        ),
        Fault(
            "more than 131072 fragments",
            1_009,
            .glued(
                .frame(.text("").unfinished()),
                .frame(.continuation().unfinished()).times(131_072)
            )
        ),
        // Bytes that arrive one by one are recognised too.
        Fault("is masked", 1_002, .frame(.text("x").masked()).dribbled()),
        // A proxy's page in the middle of everything.
        Fault("reserved bits 4", 1_002, .raw("HTTP/1.1 502 Bad Gateway\r\n\r\n".utf8)),
    ]

    /// The faults of messages that are compressed by agreement.
    static let compressionFaults: [Fault] = [
        Fault("the limit is 16777216", 1_009, .deflateBomb(inflatingTo: 64 << 20)),
        Fault("the limit is 16777216", 1_009, .frame(.deflateBomb(inflatingTo: 64 << 20)).dribbled(bytes: 1_000)),
        Fault("cannot be inflated", 1_007, .binary([0xFF, 0xFF, 0xFF]).reserving(bits: 4)),
        Fault("reserved bits 4", 1_002, .ping().reserving(bits: 4)),
        Fault(
            "reserved bits 4",
            1_002,
            .binary([0]).reserving(bits: 4).unfinished(),
            .continuation("x").reserving(bits: 4)
        ),
        Fault("not UTF-8", 1_007, WebSocketFrame(.text, ByteBuffer(bytes: [0x61, 0xFF])).compressed()),
    ]

    private func link(
        _ server: MockWebSocketServer,
        _ configure: (inout WebSocketLink.Configuration) -> Void = { _ in }
    ) throws -> WebSocketLink {
        var configuration = try WebSocketLink.Configuration(url: server.url)
        configuration.socket.backoff = Backoff(base: .milliseconds(20), cap: .milliseconds(50))
        configuration.socket.networkMonitor = nil
        configure(&configuration)
        return WebSocketLink(configuration: configuration)
    }

    private func closure(_ events: AsyncStream<WebSocketLink.Event>) async throws -> WebSocketLink.Closure {
        let event = try await first(of: events, "the end of a connection") {
            if case .closed = $0 { true } else { false }
        }
        guard case .closed(let closure) = event else { throw Unexpected(description: "\(event)") }
        return closure
    }

    /// Has a server commit `fault` between two messages on the first connection.
    private func commit(_ fault: Fault, _ server: MockWebSocketServer, reconnects: Bool) async throws {
        server.once("go", .glued(.text("before"), fault.reaction, .text("behind")))
        let link = try self.link(server) {
            $0.compression = WebSocketCompression()
            if reconnects { $0.reconnects = { _ in true } }
        }
        let texts = NIOLockedValueBox<[String]>([])
        link.setMessageHandler { message in texts.withLockedValue { $0.append(message.text ?? "binary") } }
        let (events, ends) = (link.events, link.events)
        link.connect()
        try await link.send(WebSocketMessage("go"))
        let closure = try await self.closure(events)
        #expect(closure.error?.code == .protocolViolation)
        #expect(closure.error?.message.contains(fault.words) == true, "\(closure)")
        #expect(!closure.wasClean)
        #expect(try await server.closeFrame(onConnection: 0).content.closeCode == fault.code)
        try await server.ended(connection: 0)
        if reconnects {
            try await link.send(WebSocketMessage("again"))
            try await eventually("the echo") { texts.withLockedValue { $0.last } == "again" }
            #expect(texts.withLockedValue { $0 } == ["before", "again"])
            #expect(server.acceptedCount == 2)
        } else {
            _ = try await first(of: ends, "the end") { if case .connection(.gaveUp) = $0 { true } else { false } }
            #expect(texts.withLockedValue { $0 } == ["before"])
            #expect(server.acceptedCount == 1)
        }
        link.disconnect()
    }

    @Test(arguments: Self.faults)
    func violationClosesWithItsCodeBehindTheMessagesBeforeIt(fault: Fault) async throws {
        try await self.commit(fault, try await MockWebSocketServer(.echo), reconnects: false)
    }

    @Test(arguments: [Self.faults[0], Self.faults[13], Self.faults[25]])
    func policyMayReconnectAfterAViolation(fault: Fault) async throws {
        try await self.commit(fault, try await MockWebSocketServer(.echo), reconnects: true)
    }

    @Test(arguments: Self.compressionFaults)
    func compressedViolationClosesWithItsCode(fault: Fault) async throws {
        let server = try await MockWebSocketServer(.echo, compression: WebSocketCompression())
        try await self.commit(fault, server, reconnects: true)
    }

    /// Unusual frames that are valid.
    @Test(
        arguments: [
            .text("fine").dribbled(),
            .text("fine").fragmented(length: 1),
            .text("fine").fragmented(length: 1).dribbled(),
            .glued(
                .frame(.text("fi").unfinished()),
                .ping("x"),
                .frame(.continuation().unfinished()),
                .frame(.pong()),
                .frame(.continuation("ne"))
            ),
            .glued(.frame(WebSocketFrame(.text).unfinished()), .frame(.continuation("fine"))),
        ] as [MockWebSocketServer.Reaction]
    )
    func unusualFramesAreRight(reaction: MockWebSocketServer.Reaction) async throws {
        let server = try await MockWebSocketServer()
        server.on("how are you?", reaction)
        let link = try self.link(server)
        link.connect()
        try await link.send(WebSocketMessage("how are you?"))
        #expect(try await first(of: link.messages, "the answer").text == "fine")
        link.disconnect()
        await link.waitUntilClosed()
        #expect(try await server.closeFrame().content == .close(code: 1_000, reason: ""))
        #expect(server.acceptedCount == 1)
    }

    @Test(
        arguments: [
            .disconnect, .reset, .halfClose, .text("cut").cut(after: 1).then(.disconnect),
            .text("cut").cut(after: 3).then(.reset), .frame(.text("part").unfinished()).then(.disconnect),
        ] as [MockWebSocketServer.Reaction]
    )
    func endWithoutACloseFrameIsALossThatIsHealed(reaction: MockWebSocketServer.Reaction) async throws {
        let server = try await MockWebSocketServer(.echo)
        server.once("go", .text("before").then(reaction))
        let link = try self.link(server)
        let texts = NIOLockedValueBox<[String]>([])
        link.setMessageHandler { message in texts.withLockedValue { $0.append(message.text ?? "binary") } }
        let events = link.events
        link.connect()
        try await link.send(WebSocketMessage("go"))
        let closure = try await self.closure(events)
        #expect(closure.code == 1_006 && !closure.wasClean)
        #expect(closure.error?.code == .connectionLost)
        try await link.send(WebSocketMessage("again"))
        try await eventually("the echo") { texts.withLockedValue { $0.last } == "again" }
        // A reset may discard messages that were sent before.
        #expect([["before", "again"], ["again"]].contains(texts.withLockedValue { $0 }))
        link.disconnect()
    }

    @Test(arguments: [(1_000, true), (1_001, true), (1_012, true), (1_008, false), (4_500, false)])
    func closeWithAReasonIsReportedAndAnswered(code: Int, reconnects: Bool) async throws {
        let server = try await MockWebSocketServer(.echo)
        server.onOpen(number: 0, .glued(.text("before"), .close(code: UInt16(code), reason: "because")))
        let link = try self.link(server)
        let (events, ends) = (link.events, link.events)
        link.connect()
        #expect(try await first(of: link.messages, "the message in the read of the opening").text == "before")
        let closure = try await self.closure(events)
        #expect(Int(closure.code) == code && closure.reason == "because" && closure.wasClean)
        #expect(try await server.closeFrame(onConnection: 0).content == .close(code: UInt16(code), reason: ""))
        if reconnects {
            try await server.connection(1)
        } else {
            _ = try await first(of: ends, "the end") { if case .connection(.gaveUp) = $0 { true } else { false } }
            #expect(server.acceptedCount == 1)
        }
        link.disconnect()
    }

    @Test func closeFrameWithoutACodeIs1005() async throws {
        let server = try await MockWebSocketServer(.echo)
        server.onOpen(number: 0, .frame(.close()))
        let link = try self.link(server)
        let events = link.events
        link.connect()
        #expect(try await self.closure(events).code == 1_005)
        #expect(try await server.closeFrame(onConnection: 0).content == .close(code: nil, reason: ""))
        link.disconnect()
    }

    @Test func closeFrameThatIsNotAnsweredIsNotWaitedForForEver() async throws {
        let server = try await MockWebSocketServer(.echo)
        server.onClose(.drop)
        let time = ManualTime()
        let link = try self.link(server) { $0.socket.time = SocketTime(time) }
        link.connect()
        try await link.send(WebSocketMessage("hello"))
        let began = time.now()
        link.disconnect()
        _ = try await server.closeFrame(onConnection: 0)
        let ended = Watched<NIODeadline?>(nil)
        Task {
            await link.waitUntilClosed()
            ended.withLockedValue { $0 = time.now() }
        }
        try await time.advance(by: .seconds(1), until: "the end") { ended.current != nil }
        #expect(try #require(ended.current) - began >= .seconds(4))
        try await server.ended(connection: 0)
    }

    @Test(arguments: [false, true]) func pingThatIsNotAnsweredLosesTheLink(isSilent: Bool) async throws {
        let server = try await MockWebSocketServer(.echo)
        server.onPing(.drop)
        if isSilent { server.onOpen(number: 0, .goSilent) }
        let link = try self.link(server) {
            $0.socket.heartbeat = HeartbeatPolicy(
                interval: .milliseconds(30),
                replyTimeout: .milliseconds(30),
                misses: 0
            )
        }
        let events = link.events
        link.connect()
        let closure = try await self.closure(events)
        #expect(closure.error?.code == .connectionLost)
        #expect(closure.error?.message.contains("heartbeat") == true)
        try await server.connection(1)
        link.disconnect()
    }

    /// Few bytes that inflate to many: they are delivered as fast as they are read, and none is lost.
    @Test(arguments: [false, true])
    func messagesThatInflateAreHeldBackUntilTheyAreRead(hasHandler: Bool) async throws {
        let server = try await MockWebSocketServer(compression: WebSocketCompression())
        let bomb = MockWebSocketServer.Reaction.frame(.deflateBomb(inflatingTo: 900_000)).times(50)
        server.on("go", .glued(bomb, .text("last"), .close(code: 4_000)))
        let link = try self.link(server) { $0.compression = WebSocketCompression() }
        let events = link.events
        let lengths = NIOLockedValueBox<[Int]>([])
        let take: @Sendable (WebSocketMessage) -> Void = { message in
            lengths.withLockedValue { $0.append(message.payload.readableBytes) }
        }
        if hasHandler { link.setMessageHandler(take) }
        link.connect()
        try await link.send(WebSocketMessage("go"))
        // The sequence is empty while there is a handler.
        let reading = Task { for await message in link.messages { take(message) } }
        #expect(try await self.closure(events).code == 4_000)
        #expect(lengths.withLockedValue { $0 } == Array(repeating: 900_000, count: 50) + [4])
        reading.cancel()
        link.disconnect()
    }

    /// Unread messages that a server has sent before it ended TCP without a close frame.
    @Test func messagesBeforeAnEndAreReadAfterIt() async throws {
        let server = try await MockWebSocketServer()
        server.on("go", .text("x").times(2_000).then(.disconnect))
        let link = try self.link(server)
        let events = link.events
        link.connect()
        try await link.send(WebSocketMessage("go"))
        // Reading is suspended by then, and the end of TCP brings the rest.
        var count = 0
        for await message in link.messages {
            #expect(message.text == "x")
            count += 1
            if count == 2_000 { break }
        }
        #expect(try await self.closure(events).code == 1_006)
        link.disconnect()
    }

    // MARK: Openings

    /// An answer to the request, and the client's error.
    struct Refusal: Sendable, CustomTestStringConvertible {
        var answer: MockOpening
        /// A part of the error's message.
        var words: String

        init(_ words: String, _ answer: MockOpening) {
            self.answer = answer
            self.words = words
        }

        var testDescription: String { self.words }
    }

    static let refusals: [Refusal] = [
        Refusal("does not belong to our key", .wrongAccept),
        Refusal("no Sec-WebSocket-Accept", .accept.without("Sec-WebSocket-Accept")),
        Refusal("more than one Sec-WebSocket-Accept", .accept.adding("Sec-WebSocket-Accept", "another")),
        Refusal("no \"Upgrade: websocket\"", .accept.without("upgrade")),
        Refusal("no \"Upgrade: websocket\"", .accept.with("Upgrade", "h2c")),
        Refusal("no \"Connection: Upgrade\"", .accept.without("connection")),
        Refusal("no \"Connection: Upgrade\"", .accept.with("Connection", "keep-alive")),
        Refusal("\"other\", which was not offered", .accept.with("Sec-WebSocket-Protocol", "other")),
        Refusal(
            "more than one Sec-WebSocket-Protocol",
            .accept.adding("Sec-WebSocket-Protocol", "chat").adding("Sec-WebSocket-Protocol", "chat")
        ),
        Refusal("extension x-unknown", .accept.with("Sec-WebSocket-Extensions", "x-unknown")),
        Refusal("extension permessage-deflate", .accept.with("Sec-WebSocket-Extensions", "permessage-deflate")),
        Refusal(
            "Sec-WebSocket-Extensions of the server's 101 is malformed",
            .accept.with("Sec-WebSocket-Extensions", "; =")
        ),
        Refusal("does not speak HTTP", .raw("SSH-2.0-OpenSSH_9.2\r\n")),
        Refusal("does not speak HTTP", .raw([0, 0, 0, 101, 0, 0, 0, 1])),
        Refusal("does not answer in HTTP/1.1", .raw("HTTP/1.0 101 Switching Protocols\r\n\r\n")),
        Refusal("first line is malformed", .raw("HTTP/1.1 OK\r\n\r\n")),
        Refusal("has no colon", .raw("HTTP/1.1 101 Switching Protocols\r\nUpgrade\r\n\r\n")),
        Refusal("folded", .raw("HTTP/1.1 101 Switching Protocols\r\nUpgrade:\r\n websocket\r\n\r\n")),
        Refusal("control character", .raw("HTTP/1.1 101 Switching\u{7} Protocols\r\n\r\n")),
        Refusal("longer than 16384 bytes", .accept.with("X-Padding", String(repeating: "x", count: 16_384))),
        Refusal("closed the connection before it had answered", .close),
        Refusal("closed the connection before it had answered", .accept.cut(after: 20).then(.close)),
        Refusal("refused the WebSocket: 401 Scripted: who are you?", .refuse(status: 401, body: "who are you?")),
        Refusal("refused the WebSocket: 200", .refuse(status: 200, body: "<html>a captive portal</html>")),
        Refusal("refused the WebSocket: 302", .refuse(status: 302)),
        Refusal("redirects to a URL that has a scheme", .redirect(to: "ftp://127.0.0.1/")),
        Refusal("redirected more than 5 times", .redirect(to: "/again", status: 307)),
    ]

    private func failure(_ events: AsyncStream<WebSocketLink.Event>) async throws -> SocketError {
        let event = try await first(of: events, "a failure to connect") {
            if case .connection(.connectFailed) = $0 { true } else { false }
        }
        guard case .connection(.connectFailed(let error)) = event else { throw Unexpected(description: "\(event)") }
        return error
    }

    @Test(arguments: Self.refusals) func openingThatFailsSaysWhyAndIsTriedAgain(refusal: Refusal) async throws {
        let server = try await MockWebSocketServer(.echo)
        server.onOpening(refusal.answer)
        let link = try self.link(server) { $0.subprotocols = ["chat"] }
        let (events, opened) = (link.events, link.events)
        link.connect()
        let error = try await self.failure(events)
        #expect(error.code == .handshakeRefused, "\(error)")
        #expect(error.message.contains(refusal.words), "\(error)")
        server.onOpening(.accept)
        _ = try await first(of: opened, "an opening") { if case .opened = $0 { true } else { false } }
        try await link.send(WebSocketMessage("hello"))
        #expect(try await first(of: link.messages, "the echo").text == "hello")
        link.disconnect()
    }

    @Test(
        arguments: [
            .silence, .accept.dribbled(every: .milliseconds(50)), .accept.delayed(by: .seconds(3_600)),
            .accept.cut(after: 30), .raw("HTTP/1.1 100 Continue\r\n\r\n"),
        ] as [MockOpening]
    )
    func slowOpeningEndsWithItsTimeAndIsTriedAgain(answer: MockOpening) async throws {
        let time = ManualTime()
        let server = try await MockWebSocketServer(.echo)
        server.onOpening(answer)
        let link = try self.link(server) { $0.socket.time = SocketTime(time) }
        let events = link.events
        link.connect()
        _ = try await server.opening(0)
        await time.advance(by: .seconds(10))
        let error = try await self.failure(events)
        #expect(error.code == .connectTimeout, "\(error)")
        #expect(error.message.contains("did not open a WebSocket within"), "\(error)")
        server.onOpening(.accept)
        async let sent: Void = link.send(WebSocketMessage("hello"))
        try await time.advance(by: .milliseconds(10), until: "another attempt") { server.acceptedCount > 1 }
        try await sent
        #expect(try await first(of: link.messages, "the echo").text == "hello")
        link.disconnect()
    }

    @Test func redirectsHaveOneTimeTogether() async throws {
        let answer = MockOpening.refuse(status: 302, headers: ["Location": "/again"]).delayed(by: .milliseconds(200))
        // The time may end while the client connects to the target of the last redirect.
        try await self.expectTimeout(saying: "within 0.5 seconds", after: answer)
    }

    private func expectTimeout(saying words: String, after answer: MockOpening) async throws {
        let server = try await MockWebSocketServer(.echo)
        server.onOpening(answer)
        let link = try self.link(server) { $0.socket.connectTimeout = .milliseconds(500) }
        let events = link.events
        link.connect()
        let error = try await self.failure(events)
        #expect(error.code == .connectTimeout, "\(error)")
        #expect(error.message.contains(words), "\(error)")
        try await eventually("another attempt") { server.acceptedCount > 1 }
        server.onOpening(.accept)
        try await link.send(WebSocketMessage("hello"))
        #expect(try await first(of: link.messages, "the echo").text == "hello")
        link.disconnect()
    }

    @Test func openingByteByByteIsRight() async throws {
        let server = try await MockWebSocketServer(.echo, subprotocols: ["chat"])
        server.onOpening(.accept.dribbled())
        server.onOpen(.text("welcome"))
        let link = try self.link(server) { $0.subprotocols = ["chat"] }
        link.connect()
        #expect(try await first(of: link.messages, "the welcome").text == "welcome")
        #expect(server.acceptedCount == 1)
        #expect(try await server.opening(0).subprotocols == ["chat"])
        link.disconnect()
    }

    // MARK: Frames

    private func client(_ server: MockServer) -> SocketClient {
        SocketClient.connecting(to: server.endpoint) { $0.socket.networkMonitor = nil }
    }

    @Test(
        arguments: [
            ("is masked", 1_002, .binary([1]).masked()), ("text message", 1_003, .text("hello")),
            ("opcode 3", 1_002, WebSocketFrame(.init(rawValue: 3))), ("code 1005", 1_002, .close(code: 1_005)),
            ("top bit", 1_002, .binary([]).announcing(length: .max)),
        ] as [(String, Int, WebSocketFrame)]
    )
    func violationUnderFramesLosesTheConnectionBehindTheAnswersBeforeIt(
        words: String,
        code: Int,
        frame: WebSocketFrame
    ) async throws {
        let server = try await MockServer(.echo, webSocket: "/rpc")
        server.once(101, .glued(.echo, .webSocket(frame), .push(2_001, "behind")))
        let client = self.client(server)
        let events = client.events
        #expect(try await client.data(for: SocketRequest(type: 101, body: "before")).string == "before")
        let event = try await first(of: events, "the loss") { if case .disconnected = $0 { true } else { false } }
        guard case .disconnected(let error) = event else { return }
        #expect(error.code == .protocolViolation)
        #expect(error.message.contains(words), "\(error)")
        #expect(try await server.closeFrame(onConnection: 0).closeCode.map { Int($0) } == code)
        try await server.connection(1)
        #expect(try await client.data(for: SocketRequest(type: 101, body: "again")).string == "again")
        await client.close()
    }

    @Test func faultsOfFramesAreThoseOfTCP() async throws {
        let server = try await MockServer(.echo, webSocket: "/rpc")
        let client = self.client(server)
        server.once(101, .echo.corrupted())
        let corrupt = await #expect(throws: SocketError.self) {
            try await client.data(for: SocketRequest(type: 101, body: "x"))
        }
        #expect(corrupt?.code == .checksumMismatch)
        server.once(101, .echo.dribbled())
        #expect(try await client.data(for: SocketRequest(type: 101, body: "slowly")).string == "slowly")
        server.once(101, .echo.cut(after: 10).then(.reset))
        let cut = await #expect(throws: SocketError.self) {
            try await client.data(for: SocketRequest(type: 101, body: "x"))
        }
        #expect(cut?.code == .connectionLost)
        try await server.connection(1)
        server.once(101, .echo.announcing(length: .max))
        _ = await #expect(throws: SocketError.self) {
            try await client.data(for: SocketRequest(type: 101, body: "x"))
        }
        #expect(try await server.closeFrame(onConnection: 1).closeCode == 1_009)
        try await server.connection(2)
        #expect(try await client.data(for: SocketRequest(type: 101, body: "again")).string == "again")
        await client.close()
    }
}
