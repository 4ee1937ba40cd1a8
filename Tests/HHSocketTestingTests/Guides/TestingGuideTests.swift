import HHSocketRPC
import HHSocketServer
import HHSocketTesting
import TestSupport
import Testing

/// The examples of `Docs/Testing.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TestingGuideTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        let page = try DocumentationPage("Docs/Testing.md")
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

    @Test func serverThatIsAboutToEnd() async throws {
        let server = try await MockServer(.echo)
        let other = try await MockServer(.echo)
        let client = SocketClient(configuration: .init(servers: [server.endpoint, other.endpoint]))
        client.connect()
        _ = try await client.data(for: SocketRequest(type: 101))
        server.onAnyOther(.draining)
        await server.sendGoAway(retryAfter: .seconds(2))
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
        .echo.twice(),
        .echo.withSerial(4_000_000),
        .answer("?", status: Status(rawValue: 299)),
        .echo.corrupted(),
        .echo.announcing(length: .max),
        .echo.cut(after: 10).then(.close), .echo.cut(after: 10).then(.reset),
        .halfClose,
        .goSilent, .wakeUp,
        .stopReading,
        .oneOf(.echo, .drop, .status(.overloaded)),
        .raw([1, 2, 3]),
    ]

    @Test(arguments: Self.whatCanGoWrong.indices)
    func whatGoesWrongForOneConnectionHarmsNoOther(index: Int) async throws {
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

/// Those of them that test a server.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ServerTestingGuideTests {
    private let server: SocketServer
    private let endpoint: Endpoint

    init() async throws {
        var router = Router()
        router.handleSynchronously(101) { request, _ in request.body }
        self.server = SocketServer(configuration: .init(), router: router)
        try await self.server.start()
        self.endpoint = try #require(self.server.address)
    }

    @Test func whatAServerDoesAboutWrongFrames() async throws {
        let client = try await HostileClient(to: endpoint)
        await client.perform(.request(101, serial: 50, "hello"))
        #expect(try await client.response().status == .ok)

        await client.perform(.request(101, serial: 51, "broken").corrupted())
        #expect(try await client.response().status == .lostPacket)

        await client.perform(.request(101, serial: 52, "half").cut(after: 14).then(.halfClose))
        try await client.ended()
    }

    @Test(arguments: HostileClient.Attack.allCases)
    func honestClientsAreUnharmed(attack: HostileClient.Attack) async throws {
        let attackers = try await attack.run(against: endpoint, type: 101)
        let honest = try await HostileClient(to: endpoint)
        await honest.perform(.request(101, serial: 50, "hello"))
        #expect(try await honest.response().payload == ByteBuffer(string: "hello"))
        for attacker in attackers { await attacker.perform(.close) }
    }
}
