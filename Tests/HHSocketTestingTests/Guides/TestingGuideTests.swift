// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketSTOMP
import HHSocketServer
import HHSocketTesting
import TestSupport
import Testing

/// The examples of `Testing.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TestingGuideTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        let page = try DocumentationPage(guide: "Testing")
        #expect(try page.shortcomings() == [])
        let source = try DocumentationPage("Tests/HHSocketTestingTests/Guides/TestingGuideTests.swift").text
        let rows = page.text.components(separatedBy: "\n").filter { $0.hasPrefix("| ") }
        #expect(!rows.isEmpty)
        for row in rows {
            // Every other piece is between backticks.
            for (index, code) in row.components(separatedBy: "`").enumerated() where index % 2 == 1 {
                #expect(source.contains(code), "not in the tests: \(code)")
            }
        }
    }

    @Test func answersByTypeAndARecord() async throws {
        let server = try await MockServer()
        server.on(101, .answer("hello"))
        server.on(102, .echo)
        server.on(103, .status(.noPermission))
        server.on(104, .respond { .answer("\($0.string), on connection \($0.connection)") })

        let client = SocketClient(configuration: .init(servers: [server.endpoint]))
        client.connect()
        let response = try await client.data(for: SocketRequest(type: 101, body: "hi"))
        #expect(response.string == "hello")

        _ = try await client.data(for: SocketRequest(type: 101, body: "hi again"))
        #expect(
            try await client.data(for: SocketRequest(type: 104, body: "hi")).string == "hi, on connection 0"
        )

        let requests = try await server.received(2, ofType: 101)
        #expect(requests.map(\.string) == ["hi", "hi again"])
        await client.close()
        try await server.ended(connection: 0)
    }

    @Test func helloAndMetadata() async throws {
        let server = try await MockServer()
        server.acceptHello()
        server.on(101, .echo.withMetadata(["region": "eu"]).compressed())

        var configuration = SocketClient.Configuration(servers: [server.endpoint])
        configuration.hello = HelloPolicy()
        let client = SocketClient(configuration: configuration)
        client.connect()
        var request = SocketRequest(type: 101, body: "hi")
        request.metadata = ["tenant": "acme"]
        #expect(try await client.data(for: request).metadata == ["region": "eu"])
        #expect(try await server.received(1, ofType: 101)[0].metadata == ["tenant": "acme"])
    }

    @Test func streams() async throws {
        let server = try await MockServer()
        server.acceptHello(streams: StreamPolicy(streamWindow: 1_000, maximumStreams: 2))
        server.on(1_010, .glued(.item("one"), .item("two"), .status(.ok)))
        server.on(1_011, .drop)
        server.onItemsEnded(of: 1_011, .answer("sum").withMetadata(["count": "3"]))
        server.on(1_012, .drop)
        server.onItem(of: 1_012, .respond { .item($0.body) })
        server.onItemsEnded(of: 1_012, .status(.ok))

        var configuration = SocketClient.Configuration(servers: [server.endpoint])
        configuration.streams = StreamPolicy()
        let client = SocketClient(configuration: configuration)
        client.connect()
        let upload = try await client.stream(for: SocketRequest(type: 1_011), kind: .clientStreaming)
        for _ in 0..<3 { try await upload.send(ByteBuffer(repeating: 7, count: 500)) }
        upload.finish()
        #expect(try await upload.response.metadata == ["count": "3"])
        #expect(try await server.receivedItems(3, of: 1_011).count == 3)

        let download = try await client.stream(for: SocketRequest(type: 1_010), kind: .serverStreaming)
        var texts: [String] = []
        for try await item in download.items { texts.append(String(buffer: item)) }
        #expect(texts == ["one", "two"])

        let both = try await client.stream(for: SocketRequest(type: 1_012))
        let serial = try await server.received(1, ofType: 1_012)[0].frame.serial
        try await server.connection(0).perform(.item("by hand").withSerial(serial))
        try await both.send(ByteBuffer(string: "echo"))
        both.finish()
        texts = []
        for try await item in both.items { texts.append(String(buffer: item)) }
        #expect(texts == ["by hand", "echo"])
    }

    private static let whatCanGoWrongWithStreams: [(reaction: MockServer.Reaction, code: SocketError.Code?)] = [
        (.glued(.item("one"), .status(.database).withMetadata(["why": "disk"])), .database),
        (.stall, .timeout),
        (.glued(.item("one"), .stall), .timeout),
        (.glued(.item("one"), .disconnect), .connectionLost),
        (.overrunStream, .protocolViolation),
        (.overrunConnection, .protocolViolation),
        (.dieInMidStream(afterItems: 3), .connectionLost),
        (.dieInMidStream(afterItems: 3, .betweenPieces), .connectionLost),
        (.dieInMidStream(afterItems: 3, .withinPiece), .connectionLost),
        (.wrongCredit(.tooLittle), .timeout), (.wrongCredit(.smaller), .timeout),
        (.wrongCredit(.malformed), .timeout), (.wrongCredit(.unknownStream), .timeout),
        (.credit(1_000), .timeout), (.connectionCredit(5_000), .timeout),
        (.item("large").inPieces(of: 2), .timeout),
        (.glued(.item("half").unfinished(), .status(.ok)), nil),
        (.glued(.status(.ok), .item("late")), nil),
        (.item("one").corrupted(), .checksumMismatch),
    ]

    @Test(arguments: Self.whatCanGoWrongWithStreams.indices) func faultsOfStreams(_ index: Int) async throws {
        let server = try await MockServer()
        server.acceptHello(streams: StreamPolicy())
        server.on(1_012, Self.whatCanGoWrongWithStreams[index].reaction)
        let client = SocketClient.connecting(to: server.endpoint) { $0.streams = StreamPolicy() }
        var request = SocketRequest(type: 1_012)
        if Self.whatCanGoWrongWithStreams[index].code == .timeout { request.timeout = .milliseconds(300) }
        // The connection may end, or be lost, before it is known to be open.
        let end = await Result {
            let stream = try await client.stream(for: request)
            for try await _ in stream.items {}
        }
        switch end {
        case .success: #expect(Self.whatCanGoWrongWithStreams[index].code == nil)
        case .failure(let error): #expect((error as? SocketError)?.code == Self.whatCanGoWrongWithStreams[index].code)
        }
    }

    @Test func serverThatIsAboutToEnd() async throws {
        let server = try await MockServer(.echo)
        let other = try await MockServer(.echo)
        let client = SocketClient(configuration: .init(servers: [server.endpoint, other.endpoint]))
        client.connect()
        _ = try await client.data(for: SocketRequest(type: 101))
        server.onAnyOther(.status(.draining))
        await server.perform(.goAway(retryAfter: .seconds(2)))
        #expect(try await client.data(for: SocketRequest(type: 101)).endpoint == other.endpoint)
        await client.close()
    }

    private static let whatCanGoWrong: [MockServer.Reaction] = [
        .drop,
        .echo.delayed(by: .seconds(2)),
        .echo.late(),
        .echo.dribbled(), .echo.dribbled(bytes: 3, every: .milliseconds(5)),
        .glued(.push(2001, "news"), .ping(), .echo),
        .echo.held(until: 3, release: .reversed), .echo.held(until: 3, release: .shuffled),
        .echo.times(2),
        .echo.withSerial(4_000_000),
        .answer("?", status: Status(rawValue: 299)),
        .echo.corrupted(),
        .echo.announcing(length: .max),
        .echo.cut(after: 10).then(.disconnect), .echo.cut(after: 10).then(.reset),
        .halfClose,
        .goSilent, .wakeUp,
        .stopReading,
        .oneOf(.echo, .drop, .status(.overloaded)),
        .raw([1, 2, 3]),
    ]

    private static let whatCanGoWrongWithOpenings: [MockOpening] = [
        .refuse(status: 401), .refuse(status: 503, headers: ["Retry-After": "1"]),
        .refuse(status: 302, headers: ["Location": "/elsewhere"]),
        .accept.with("Sec-WebSocket-Accept", "another"),
        .accept.without("Upgrade"),
        .accept.with("Sec-WebSocket-Protocol", "chat.v3"),
        .accept.with("Sec-WebSocket-Extensions", "x-unknown"),
        .accept.adding("Sec-WebSocket-Accept", "another"),
        .drop,
        .accept.delayed(by: .seconds(2)),
        .accept.dribbled(every: .milliseconds(5)),
        .accept.cut(after: 20).then(.disconnect), .accept.cut(after: 20).then(.reset),
        .respond { $0.header("Authorization") == nil ? .refuse(status: 401) : .accept },
        .raw("SSH-2.0-OpenSSH_9.2\r\n".utf8),
    ]

    private static let whatCanGoWrongWithMessages: [MockWebSocketServer.Reaction] = [
        .echo.fragmented(length: 3),
        .echo.dribbled(),
        .frame(.text("part").unfinished()),
        .frame(.text("x").masked()),
        .raw([0xC1, 0x01, 0x78]), .frame(WebSocketFrame(.reserved(3))),
        .raw([0x81, 0x7E, 0x00, 0x01, 0x78]),
        .raw([0x82, 0x7F] + [UInt8](repeating: 0xFF, count: 8)),
        .frame(.ping().unfinished()),
        .frame(WebSocketFrame(.continuation, ByteBuffer(string: "x"))),
        .frame(WebSocketFrame(.text, ByteBuffer(bytes: [0xFF]))),
        .close(code: 1005),
        .frame(WebSocketFrame(.close, ByteBuffer(bytes: [3]))),
        .echo.compressed(),
        .frame(.deflateBomb(inflatingTo: 64 << 20)),
        .glued(.text("before"), .frame(.text("x").masked())),
        .disconnect, .reset,
        .goSilent, .wakeUp,
    ]

    @Test(arguments: Self.whatCanGoWrongWithOpenings.indices)
    func openingThatGoesWrongHarmsNoOther(index: Int) async throws {
        let server = try await MockWebSocketServer(.echo)
        server.onOpening(number: 0, Self.whatCanGoWrongWithOpenings[index])
        let first = try await HostileClient(to: server.endpoint, opensWebSocket: false)
        await first.perform(.opening())
        try await server.opening(0)
        let second = try await HostileClient(to: server.endpoint)
        await second.perform(.text("hello"))
        #expect(try await second.message().text == "hello")
    }

    @Test(arguments: Self.whatCanGoWrongWithMessages.indices)
    func messageThatGoesWrongHarmsNoOther(index: Int) async throws {
        let server = try await MockWebSocketServer(.echo)
        server.once(Self.whatCanGoWrongWithMessages[index])
        let first = try await HostileClient(to: server.endpoint)
        await first.perform(.text("go on"))
        try await server.received(1)
        let second = try await HostileClient(to: server.endpoint)
        await second.perform(.text("hello"))
        #expect(try await second.message().text == "hello")
    }

    @Test func framesOverWebSocket() async throws {
        let server = try await MockServer(.echo, webSocket: "/rpc")
        server.onOpening(number: 0, .refuse(status: 503, headers: ["Retry-After": "1"]))
        server.once(101, .echo.corrupted())
        server.once(101, .echo.then(.webSocket(.close(code: 1012, reason: "restart"))))

        let client = SocketClient(configuration: .init(servers: [server.endpoint]))
        client.connect()

        try await server.connection(1)
        let corrupt = await #expect(throws: SocketError.self) {
            try await client.data(for: SocketRequest(type: 101, body: "x", timeout: .seconds(60)))
        }
        #expect(corrupt?.code == .checksumMismatch)
        #expect(try await client.data(for: SocketRequest(type: 101, body: "x")).string == "x")
        #expect(try await server.closeFrame(onConnection: 1).closeCode == 1_012)
        await client.close()
    }

    @Test func messagesAndTheirRecord() async throws {
        let server = try await MockWebSocketServer(.echo, path: "/chat", subprotocols: ["chat.v2"])
        server.on("how are you?", .text("fine"))
        server.once("help", .close(code: 1012, reason: "restart"))
        server.onOpen(.text("welcome"))

        var configuration = try WebSocketLink.Configuration(url: server.url)
        configuration.subprotocols = ["chat.v2"]
        let link = WebSocketLink(configuration: configuration)
        link.connect()
        try await link.send(WebSocketMessage("how are you?"))
        #expect(try await server.received(1)[0].text == "how are you?")
        #expect(try await server.opening(0).subprotocols == ["chat.v2"])
        await server.perform(.text("news"))  // to everybody

        for text in ["welcome", "fine", "news"] {
            #expect(try await first(of: link.messages, text).text == text)
        }
        try await link.send(WebSocketMessage("help"))
        #expect(try await server.closeFrame().content == .close(code: 1_012, reason: ""))
        link.disconnect()
    }

    @Test(arguments: Self.whatCanGoWrong.indices)
    func faultOfOneConnectionDoesNotAffectOthers(index: Int) async throws {
        let server = try await MockServer(seed: 7)
        server.once(101, Self.whatCanGoWrong[index])
        server.on(101, .echo)
        let first = try await HostileClient(to: server.endpoint)
        await first.perform(.request(101, serial: 50, "hello"))
        try await server.received(1)
        let second = try await HostileClient(to: server.endpoint)
        await second.perform(.request(101, serial: 50, "hello"))
        #expect(try await second.response().payload == ByteBuffer(string: "hello"))
    }

    @Test func aServerThatIsAwayForAWhile() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient(configuration: .init(servers: [server.endpoint]))
        let events = client.events
        try await server.refuseConnections()
        client.connect()
        let refused = await #expect(throws: SocketError.self) {
            try await client.data(for: SocketRequest(type: 101, body: "nobody there"))
        }
        #expect(refused?.delivery == .notSent)
        try await server.acceptConnections()
        _ = try await first(of: events, "a connection") { if case .connected = $0 { true } else { false } }
        #expect(try await client.data(for: SocketRequest(type: 101, body: "back")).string == "back")
    }

    @Test func somethingGoesWrongOnce() async throws {
        let server = try await MockServer(.echo)
        server.once(101, .echo.cut(after: 10).then(.reset))

        let client = SocketClient(configuration: .init(servers: [server.endpoint]))
        client.connect()
        let error = await #expect(throws: SocketError.self) {
            try await client.data(for: SocketRequest(type: 101, body: "lost on the way"))
        }
        #expect(error?.code == .connectionLost)
        #expect(error?.delivery == .sentUnknown)
    }

    @Test func actsAtAnyMoment() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient(configuration: .init(servers: [server.endpoint]))
        client.connect()
        let pushes = client.pushes(ofType: 2001)
        _ = try await client.data(for: SocketRequest(type: 101))

        await server.perform(.push(2001, "news"))  // to everybody
        try await server.connection(0).perform(.ping())  // to the first one

        #expect(try await first(of: pushes, "the push").string == "news")
        try await server.received(1, ofType: FrameType.heartbeat)
    }

    @Test func anHourInNoTime() async throws {
        let clock = VirtualClock()
        let server = try await MockServer(.echo.delayed(by: .seconds(3_600)), clock: clock)
        let client = SocketClient(configuration: .init(servers: [server.endpoint]))
        client.connect()
        let task = client.dataTask(with: SocketRequest(type: 101, body: "in an hour", timeout: .seconds(7_200)))
        task.resume()
        try await clock.waitForSleepers()
        clock.advance(by: .seconds(3_600))

        try await eventually("the answer") { task.state == .completed }
        #expect(task.response?.string == "in an hour")
    }
}

/// The examples of `Testing.md` that test a server.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ServerTestingGuideTests {
    private let server: SocketServer
    private let endpoint: Endpoint

    init() async throws {
        var router = Router()
        router.handleSynchronously(101) { request, _ in request.body }
        let listener = try ServerListener(url: "tcp+ws://127.0.0.1:0/rpc")
        self.server = SocketServer(configuration: .init(listeners: [listener]), router: router)
        try self.server.webSocket("/chat", onMessage: { message, connection in connection.post(message) })
        try await self.server.start()
        self.endpoint = try #require(self.server.address)
    }

    @Test func reactionsOfAServerToWrongFrames() async throws {
        let client = try await HostileClient(to: endpoint)
        await client.perform(.request(101, serial: 50, "hello"))
        #expect(try await client.response().status == .ok)

        await client.perform(.request(101, serial: 51, "broken").corrupted())
        #expect(try await client.response().status == .lostPacket)

        await client.perform(.request(101, serial: 52, "half").cut(after: 14).then(.halfClose))
        try await client.ended()
    }

    @Test func reactionsOfAServerToWrongMessages() async throws {
        let port = endpoint.port
        let client = try await HostileClient(to: try Endpoint(url: "ws://127.0.0.1:\(port)/chat"))
        await client.perform(.text("hello").then(.webSocketFrame(.text("not masked").unmasked())))
        #expect(try await client.message().text == "hello")
        #expect(try await client.message().closeCode == 1002)
        try await client.ended()
    }

    @Test func reactionsOfAServerToWrongOpenings() async throws {
        let url = try Endpoint(url: "ws://127.0.0.1:\(endpoint.port)/chat")
        let slow = try await HostileClient(to: url, opensWebSocket: false)
        await slow.perform(.opening(headers: ["Sec-WebSocket-Version": "12"], without: ["Origin"]).dribbled(bytes: 10))
        #expect(try await slow.opening().status == 426)
    }

    @Test func honestClientsAreServedBesidesReadersThatHoardAnswers() async throws {
        let hoard = HostileClient.Act.readSlowly(bytes: 8 << 10, every: .seconds(1))
            .then(.requests(101, serials: 50..<1_050, ByteBuffer(repeating: 0x61, count: 1 << 10)))
            .then(.keepSending(.ping(), every: .milliseconds(100)))
        let attackers = try await withThrowingTaskGroup(of: HostileClient.self) { group in
            for _ in 0..<20 {
                group.addTask {
                    let attacker = try await HostileClient(to: endpoint, receiveBuffer: 4 << 10)
                    await attacker.perform(hoard, within: .seconds(1))
                    return attacker
                }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }

        let honest = try await HostileClient(to: endpoint)
        await honest.perform(.request(101, serial: 50, "hello"))
        #expect(try await honest.response().payload == ByteBuffer(string: "hello"))
        for attacker in attackers { await attacker.perform(.close) }
    }

    @Test func honestClientsAreServedBesidesFramesThatNeverEnd() async throws {
        let beginning = ByteBuffer(repeating: 0x61, count: 512 << 10)
        let slowFrame = HostileClient.Act.frame(Frame(type: 101, serial: 50, payload: beginning))
            .announcing(length: 1 << 20)
            .then(.keepSending(.raw([0x61]), every: .seconds(1)))
        var attackers: [HostileClient] = []
        for _ in 0..<20 {
            let attacker = try await HostileClient(to: endpoint)
            await attacker.perform(slowFrame, within: .seconds(1))
            attackers.append(attacker)
        }

        let honest = try await HostileClient(to: endpoint)
        await honest.perform(.request(101, serial: 50, "hello"))
        #expect(try await honest.response().payload == ByteBuffer(string: "hello"))
        for attacker in attackers { await attacker.perform(.close) }
    }
}

/// The examples of the page about brokers.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct BrokerGuideTests {
    @Test func brokerBehavesAsAStrictOneUntilTheTestSaysOtherwise() async throws {
        let broker = try await MockBroker()
        broker.once(.send, .handleWithoutReceipt)  // it arrives, and its sender does not know
        broker.once(.subscribe, .error("no permission").then(.disconnect))
        try await broker.publish("hello", to: "/queue/greetings", headers: ["content-type": "text/plain"])
        #expect(broker.messages(in: "/queue/greetings").map { String(buffer: $0.body) } == ["hello"])
        await broker.perform(.raw("\n".utf8))  // a heart-beat, to everybody

        let client = try await RawSTOMPClient(to: broker.endpoint, version: .v1_2)
        try await client.send("SUBSCRIBE\nid:1\ndestination:/queue/greetings\nreceipt:1\n\n\0")
        #expect(try await client.frames(2)[1].headers["message"] == "no permission")
        try await client.ended()
    }

    @Test func defaultsAreThoseOfThePage() {
        let configuration = MockBroker.Configuration()
        #expect(configuration.versions == Set(STOMPVersion.allCases))
        #expect(configuration.logins == nil && configuration.virtualHosts == nil && configuration.closesAfterErrors)
        #expect(configuration.heartBeatInterval == .milliseconds(1))
        #expect(configuration.expectedHeartBeatInterval == .milliseconds(1))
        #expect(configuration.limits == STOMPLimits())
        let webSocket = MockBroker.WebSocket()
        #expect(webSocket.path == "/ws" && webSocket.sendsText && webSocket.messageLength == nil)
    }

    private static let faults: [(reaction: MockBroker.Reaction, received: String?)] = [
        (.drop, nil),
        (.handleWithoutReceipt, nil),
        (.receipt, "RECEIPT\nreceipt-id:r\n\n\0"),
        (.error("no permission"), "ERROR\nmessage:no permission\nreceipt-id:r\n\n\0"),
        (.error("no permission").then(.disconnect), "ERROR\nmessage:no permission\nreceipt-id:r\n\n\0"),
        (.respond { $0.frame.headers["destination"] == "/queue/a" ? .drop : .handle }, nil),
        (.frame(STOMPFrame(.receipt, ["receipt-id": "unknown"])), "RECEIPT\nreceipt-id:unknown\n\n\0"),
        (
            .frame(STOMPFrame(.receipt, ["receipt-id": "1"])).times(2),
            "RECEIPT\nreceipt-id:1\n\n\0RECEIPT\nreceipt-id:1\n\n\0"
        ),
        (.frame(STOMPFrame(.error, ["message": "slow"])).dribbled(), "ERROR\nmessage:slow\n\n\0"),
        (.frame(STOMPFrame(.error)).cut(after: 5).then(.disconnect), "ERROR"),
        (.raw("MESSAGE\nno colon\n\n\0".utf8), "MESSAGE\nno colon\n\n\0"),
        (.handle.then(.disconnect), "RECEIPT\nreceipt-id:r\n\n\0"),
    ]

    @Test(arguments: faults.indices) func faultsAreWhatTheySay(index: Int) async throws {
        let broker = try await MockBroker()
        let fault = Self.faults[index]
        broker.on(.send, fault.reaction)
        let client = try await RawSTOMPClient(to: broker.endpoint, version: .v1_2)
        let greeting = client.text
        try await client.send("SEND\ndestination:/queue/a\nreceipt:r\n\nx\0")
        try await broker.received(1, .send)
        let expected = greeting + (fault.received ?? "")
        // The end follows, unless it comes with the fault.
        await broker.perform(.disconnect)
        try await client.ended()
        #expect(client.text == expected)
    }

    @Test func pulledCableAndOthers() async throws {
        let broker = try await MockBroker()
        broker.on(.send, .handle.held(until: 3, release: .reversed))
        let client = try await RawSTOMPClient(to: broker.endpoint, version: .v1_2)
        for number in 1...3 { try await client.send("SEND\ndestination:/queue/a\nreceipt:\(number)\n\n\0") }
        #expect(try await client.frames(4).dropFirst().map { $0.headers["receipt-id"] } == ["3", "2", "1"])
        try await broker.refuseConnections()
        try await broker.acceptConnections()
        await broker.perform(.stopReading)
        await broker.perform(.goSilent)
        await broker.perform(.wakeUp)
        let clock = VirtualClock()
        let slow = try await MockBroker(clock: clock)
        slow.on(.connect, .handle.delayed(by: .seconds(2)).then(.reset))
        let late = try await RawSTOMPClient(to: slow.endpoint)
        try await late.send("CONNECT\n\n\0")
        try await clock.waitForSleepers(1)
        clock.advance(by: .seconds(2))
        try await late.ended()
    }
}
