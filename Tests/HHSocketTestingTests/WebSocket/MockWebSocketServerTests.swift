// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// The mock server, with a client that has no rules either.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct MockWebSocketServerTests {
    // MARK: Messages

    @Test func rulesAreChosenByTextThenByOrder() async throws {
        let server = try await MockWebSocketServer(.echo)
        server.on("a", .text("always"))
        server.once("a", .text("first"))
        server.once("a", .text("second"))
        server.once(.binary([1]))
        server.on("who", .respond { .text("connection \($0.connection)") })
        let client = try await HostileClient(to: server.endpoint)
        for text in ["a", "a", "a", "b", "b", "who"] { await client.perform(.text(text)) }
        await client.perform(.binary([7]))
        var came: [WebSocketContent] = []
        for _ in 0..<7 { came.append(try await client.message()) }
        #expect(
            came == [
                .text("first"), .text("second"), .text("always"), .binary(ByteBuffer(bytes: [1])), .text("b"),
                .text("connection 0"), .binary(ByteBuffer(bytes: [7])),
            ]
        )
        #expect(try await server.received(7).map(\.text) == ["a", "a", "a", "b", "b", "who", nil])
    }

    @Test func pingsAndCloseFramesAreAnsweredAsByAServer() async throws {
        let server = try await MockWebSocketServer()
        let client = try await HostileClient(to: server.endpoint)
        await client.perform(.webSocketFrame(.ping(ByteBuffer(string: "there?"))))
        #expect(try await client.message() == .pong(ByteBuffer(string: "there?")))
        await client.perform(.webSocketFrame(.close(code: 4_000, reason: "bye")))
        #expect(try await client.message() == .close(code: 4_000, reason: ""))
        try await client.ended()
        #expect(try await server.closeFrame().content == .close(code: 4_000, reason: "bye"))
        // A close that the server began is not answered twice.
        let other = try await HostileClient(to: server.endpoint)
        try await server.connection(1).perform(.close(code: 1_012, reason: "restart"))
        #expect(try await other.message() == .close(code: 1_012, reason: "restart"))
        await other.perform(.webSocketFrame(.close(code: 1_012)))
        try await other.ended()
        await #expect(throws: NothingHappened.self) { try await other.message() }
    }

    @Test func rulesChangeTheAnswersToControlFrames() async throws {
        let server = try await MockWebSocketServer(.echo)
        server.onPing(.text("a ping"))
        server.onClose(.drop)
        let client = try await HostileClient(to: server.endpoint)
        await client.perform(.webSocketFrames([.ping(), .close(code: 1_000)]))
        #expect(try await client.message() == .text("a ping"))
        try await server.closeFrame()
        await #expect(throws: NothingHappened.self) { try await client.message(within: .milliseconds(20)) }
    }

    @Test func violationsAreRecordedAndReported() async throws {
        let server = try await MockWebSocketServer(.echo)
        let client = try await HostileClient(to: server.endpoint)
        await client.perform(.text("before").then(.webSocketFrame(.text("x").unmasked())))
        #expect(try await client.message().text == "before")
        #expect(try await client.message().closeCode == 1_002)
        try await client.ended()
        let violations = try await server.received(1, "a violation") {
            if case .violation = $0 { true } else { false }
        }
        #expect("\(violations[0])".contains("not masked"))
    }

    @Test func adverbsApplyToFrames() async throws {
        let server = try await MockWebSocketServer()
        server.on("pieces", .echo.fragmented(length: 2).dribbled(bytes: 3))
        server.on("twice", .echo.twice())
        server.on("held", .echo.held(until: 2, release: .reversed))
        server.on("compressed", .echo.compressed())
        server.on("cut", .echo.cut(after: 2).then(.disconnect))
        let client = try await HostileClient(to: server.endpoint)
        await client.perform(.text("pieces"))
        #expect(try await client.message().text == "pieces")
        await client.perform(.text("twice"))
        #expect(try await client.message().text == "twice")
        #expect(try await client.message().text == "twice")
        await client.perform(.text("held").times(2))
        #expect(try await client.message().text == "held")
        #expect(try await client.message().text == "held")
        await client.perform(.text("compressed"))
        #expect(
            try await client.message()
                == .violation(
                    "a frame has the reserved bits 4, for which no extension was agreed on"
                )
        )
        let other = try await HostileClient(to: server.endpoint)
        await other.perform(.text("cut"))
        try await other.ended()
        await #expect(throws: NothingHappened.self) { try await other.message() }
    }

    @Test func delaysAreThoseOfTheClock() async throws {
        let clock = VirtualClock()
        let server = try await MockWebSocketServer(.echo.delayed(by: .seconds(3_600)), clock: clock)
        let client = try await HostileClient(to: server.endpoint)
        await client.perform(.text("in an hour"))
        try await clock.waitForSleepers()
        clock.advance(by: .seconds(3_600))
        #expect(try await client.message().text == "in an hour")
    }

    @Test func messagesAreCompressedByAgreement() async throws {
        let text = String(repeating: "again and again ", count: 100)
        let server = try await MockWebSocketServer(.echo, compression: WebSocketCompression())
        let plain = try await HostileClient(to: server.endpoint)
        await plain.perform(.text(text))
        #expect(try await plain.message().text == text)
        #expect(try await plain.receivedBytes.count > 1_600)
        let client = try await HostileClient(to: server.endpoint, opensWebSocket: false)
        await client.perform(.opening(headers: ["Sec-WebSocket-Extensions": "permessage-deflate"]))
        #expect(try await client.opening().header("sec-websocket-extensions") == "permessage-deflate")
        await client.perform(.webSocketFrame(.text(text).compressed()).times(2))
        #expect(try await client.message().text == text)
        #expect(try await client.message().text == text)
        #expect(try await client.receivedBytes.count < 600)
        #expect(try await server.received(2, onConnection: 1).map(\.text) == [text, text])
    }

    // MARK: Openings

    @Test func openingsAreRecordedAndAnsweredAsByAServer() async throws {
        let server = try await MockWebSocketServer(path: "/chat", subprotocols: ["v2", "v1"])
        #expect(server.url.hasSuffix("/chat"))
        let client = try await HostileClient(to: server.endpoint, opensWebSocket: false)
        await client.perform(
            .opening("/chat?token=1", headers: ["Sec-WebSocket-Protocol": "v1, v2", "Authorization": "Bearer x"])
        )
        let answer = try await client.opening()
        #expect(answer.status == 101 && answer.header("Sec-WebSocket-Protocol") == "v1")
        #expect(answer.header("Sec-WebSocket-Accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
        let request = try await server.opening(0)
        #expect((request.path, request.query) == ("/chat", "token=1"))
        #expect(request.header("authorization") == "Bearer x")
        #expect(request.subprotocols == ["v1", "v2"])
        let wrong: [(HostileClient.Act, Int)] = [
            (.opening("/other"), 404), (.opening(without: ["Upgrade"]), 426),
            (.opening(headers: ["Sec-WebSocket-Version": "12"]), 426), (.opening(without: ["Sec-WebSocket-Key"]), 400),
            (.opening(headers: ["X-Padding": String(repeating: "x", count: 17_000)]), 431), (.raw([0, 1, 2]), 400),
        ]
        for (act, status) in wrong {
            let client = try await HostileClient(to: server.endpoint, opensWebSocket: false)
            await client.perform(act)
            #expect(try await client.opening().status == status)
            try await client.ended()
        }
    }

    @Test func openingsAreAnsweredByRule() async throws {
        let clock = VirtualClock()
        let server = try await MockWebSocketServer(.echo, clock: clock)
        server.onOpening(.respond { $0.header("Authorization") == nil ? .refuse(status: 401) : .accept })
        server.onOpening(number: 1, .accept.delayed(by: .seconds(9)))
        server.onOpening(number: 2, .accept.cut(after: 12).then(.close))
        server.onOpening(number: 3, .accept.with("Sec-WebSocket-Accept", "x").without("Upgrade").adding("A", "b"))
        server.onOpening(number: 4, .redirect(to: "/elsewhere", status: 307))
        func open(_ act: HostileClient.Act = .opening()) async throws -> HostileClient {
            let client = try await HostileClient(to: server.endpoint, opensWebSocket: false)
            await client.perform(act)
            return client
        }
        #expect(try await open().opening().status == 401)
        let delayed = try await open()
        try await clock.waitForSleepers()
        clock.advance(by: .seconds(9))
        #expect(try await delayed.opening().status == 101)
        let cut = try await open()
        try await cut.ended()
        #expect(try await cut.receivedBytes == Array("HTTP/1.1 101".utf8))
        let edited = try await open().opening()
        #expect(edited.header("Sec-WebSocket-Accept") == "x" && edited.header("A") == "b")
        #expect(edited.header("Upgrade") == nil && edited.header("Connection") == "Upgrade")
        let redirected = try await open().opening()
        #expect(redirected.status == 307 && redirected.header("Location") == "/elsewhere")
        let allowed = try await open(.opening(headers: ["Authorization": "x"]).then(.text("in the same write")))
        #expect(try await allowed.opening().status == 101)
        #expect(try await allowed.message().text == "in the same write")
        // The others may have ended.
        #expect(server.connections.map(\.number).filter { $0 != 3 } == [1, 5])
        #expect(server.acceptedCount == 6)
    }

    @Test func bytesSentWithTheOpeningAreInItsWrite() async throws {
        let server = try await MockWebSocketServer()
        server.onOpen(.text("welcome"))
        server.onOpen(number: 1, .glued(.ping("x"), .disconnect))
        let client = try await HostileClient(to: server.endpoint)
        #expect(try await client.message().text == "welcome")
        await server.perform(.text("news"))
        #expect(try await client.message().text == "news")
        let second = try await HostileClient(to: server.endpoint)
        #expect(try await second.message() == .ping(ByteBuffer(string: "x")))
        try await second.ended()
        await second.perform(.close)
        try await server.ended(connection: 1)
    }

    @Test func connectionsAreRefusedAndAcceptedAgain() async throws {
        let server = try await MockWebSocketServer(.echo)
        try await server.refuseConnections()
        await #expect(throws: (any Error).self) { try await HostileClient(to: server.endpoint) }
        try await server.acceptConnections()
        let client = try await HostileClient(to: server.endpoint)
        server.once(.goSilent)
        await client.perform(.text("x"))
        try await server.received(1)
        await client.perform(.text("asleep"))
        await #expect(throws: NothingHappened.self) { try await client.message(within: .milliseconds(20)) }
        await server.perform(.wakeUp)
        #expect(try await client.message().text == "asleep")
    }

    @Test func endsWithTheLastReference() async throws {
        var server: MockWebSocketServer? = try await MockWebSocketServer(.echo)
        let endpoint = try #require(server?.endpoint)
        let client = try await HostileClient(to: endpoint)
        server = nil
        try await client.ended()
        try await eventually("the port is closed") { (try? await HostileClient(to: endpoint)) == nil }
    }

    // MARK: Frames

    @Test(arguments: formats) func framesOfEveryFormatAreCarried(format: WireFormat) async throws {
        let server = try await MockServer(.echo, format: format, webSocket: "/rpc")
        #expect(server.endpoint.isWebSocket)
        server.onOpen(.push(2_001, "news"))
        let client = try await HostileClient(to: server.endpoint, format: format)
        #expect(try await client.response().payload == ByteBuffer(string: "news"))
        await client.perform(.request(101, serial: 50, "hi").dribbled())
        #expect(try await client.response().payload == ByteBuffer(string: "hi"))
        server.once(101, .echo.dribbled(bytes: 2).twice())
        await client.perform(.requests(101, serials: 60..<62, ByteBuffer(string: "yo")))
        #expect(try await client.responses(3).map(\.serial) == [60, 60, 61])
        await client.perform(.webSocketFrame(.ping(ByteBuffer(string: "there?"))))
        #expect(try await client.message() == .pong(ByteBuffer(string: "there?")))
        server.once(101, .webSocket(.close(code: 4_000)))
        await client.perform(.request(101, serial: 70))
        #expect(try await client.message().closeCode == 4_000)
        await client.perform(.webSocketFrame(.close(code: 4_000)))
        try await client.ended()
        #expect(try await server.closeFrame().closeCode == 4_000)
        let answer = try await server.opening(0)
        #expect(answer.path == "/rpc")
    }

    @Test func framesThatAreNotWantedAreRefused() async throws {
        let server = try await MockServer(.echo, webSocket: "/rpc")
        let elsewhere = try Endpoint(url: "ws://127.0.0.1:\(server.endpoint.port)/other")
        let error = await #expect(throws: NothingHappened.self) { try await HostileClient(to: elsewhere) }
        #expect(error?.description.contains("404") == true)
        server.onOpening(.wrongAccept)
        let client = try await HostileClient(to: server.endpoint, opensWebSocket: false)
        await client.perform(.opening())
        #expect(try await client.opening().header("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
        let plain = try await MockServer(.echo)
        await #expect(throws: NothingHappened.self) { try await plain.opening(0) }
    }
}
