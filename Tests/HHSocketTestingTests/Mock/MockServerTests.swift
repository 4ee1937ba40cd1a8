// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// The formats that every mock speaks.
let formats = [WireFormat.standard, .tgcd, .plain, .mars]

private func response(_ type: UInt32, _ serial: UInt32, _ body: String = "", status: Status = .ok) -> Frame {
    Frame(type: type, serial: serial, status: status, payload: ByteBuffer(string: body))
}

/// The mock server, with a client that has no rules either.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct MockServerTests {
    // MARK: Answers

    @Test func answersByType() async throws {
        let server = try await MockServer()
        server.on(101, .answer("hello"))
        server.on(102, .echo)
        server.on(103, .status(.noPermission))
        server.on(104, .respond { .answer("\($0.string) on connection \($0.connection)") })
        server.on(105, .answer("what is left", status: Status(rawValue: 777)))
        let client = try await HostileClient(to: server.endpoint)
        await client.perform(.glued((101...106).map { .request($0, serial: 50 + $0, "hi") }))
        #expect(
            try await client.responses(6) == [
                response(101, 151, "hello"), response(102, 152, "hi"), response(103, 153, status: .noPermission),
                response(104, 154, "hi on connection 0"),
                response(105, 155, "what is left", status: Status(rawValue: 777)),
                response(106, 156, status: .undefinedType),
            ]
        )
    }

    @Test(arguments: formats) func speaksEveryFormat(format: WireFormat) async throws {
        let server = try await MockServer(.echo, format: format)
        server.on(102, .glued(.push(2_001, "news"), .ping(), .echo))
        let client = try await HostileClient(to: server.endpoint, format: format)
        await client.perform(.request(101, serial: 50, "hi").dribbled())
        let answer = try await client.response()
        #expect((answer.type, answer.serial, answer.status) == (101, 50, .ok))
        #expect(answer.payload == ByteBuffer(string: "hi"))
        await client.perform(.request(102, serial: 51, "x"))
        let frames = try await client.responses(3)
        #expect(format.isPush(frames[0]))
        #expect(frames[0].payload == ByteBuffer(string: "news"))
        #expect(frames[1].type == format.layout.heartbeat?.type)
        #expect(frames[2].serial == 51)
        await client.perform(.ping(serial: format.layout.heartbeat?.serverSerial))
        await client.perform(.request(101, serial: 52, "y"))
        // The answer to the server's ping is recorded and not answered; if only clients ping, it is not an answer.
        if format.layout.heartbeat?.pingedBy == .client {
            #expect(try await client.response().type == format.layout.heartbeat?.type)
        }
        #expect(try await client.response().serial == 52)
        #expect(server.received.map(\.type) == [101, 102, format.layout.heartbeat?.type, 101])
    }

    @Test func customFieldsOfARequestAreRepeatedInItsAnswer() async throws {
        let server = try await MockServer(.echo, format: .mars)
        let client = try await HostileClient(to: server.endpoint, format: .mars)
        await client.perform(
            .frame(Frame(type: 101, serial: 50, payload: ByteBuffer(string: "x"), customFields: [0, 0, 2, 7]))
        )
        #expect(try await client.response().customFields == [0, 0, 2, 7])
        #expect(server.received[0].frame.customFields == [0, 0, 2, 7])
    }

    @Test func rulesForOnceComeFirstAndInLine() async throws {
        let server = try await MockServer(.echo)
        server.once(101, .answer("first"))
        server.once(101, .answer("second"))
        server.on(101, .answer("always"))
        let client = try await HostileClient(to: server.endpoint)
        await client.perform(.requests(101, serials: 50..<54))
        #expect(
            try await client.responses(4).map { String(buffer: $0.payload) } == ["first", "second", "always", "always"]
        )
        server.on(101, .answer("changed"))
        await client.perform(.request(101, serial: 60))
        #expect(try await client.response() == response(101, 60, "changed"))
    }

    @Test func controlFramesHaveRulesToo() async throws {
        let server = try await MockServer(.echo)
        let client = try await HostileClient(to: server.endpoint)
        await client.perform(.ping())
        #expect(try await client.response() == response(FrameType.heartbeat, 0))
        await client.perform(.cancel(50))
        server.on(FrameType.heartbeat, .answer("what?", status: .unknown))
        await client.perform(.ping(serial: 7))
        #expect(try await client.response() == response(FrameType.heartbeat, 7, "what?", status: .unknown))
    }

    // MARK: What goes wrong

    @Test func dropsDelaysAndAnswersLate() async throws {
        let clock = VirtualClock()
        let server = try await MockServer(.echo, clock: clock)
        server.on(101, .drop)
        server.on(102, .echo.delayed(by: .seconds(30)))
        server.on(103, .echo.late())
        let client = try await HostileClient(to: server.endpoint)
        await client.perform(.glued((101...104).map { .request($0, serial: $0) }))
        #expect(try await client.response().type == 104)
        await client.perform(.glued(.cancel(101), .cancel(103)))
        #expect(try await client.response().type == 103)
        try await clock.waitForSleepers()
        clock.advance(by: .seconds(30))
        #expect(try await client.response().type == 102)
    }

    @Test func dribblesWithoutMixingFrames() async throws {
        let clock = VirtualClock()
        let server = try await MockServer(.echo, clock: clock)
        server.on(101, .echo.dribbled())
        server.on(102, .echo.dribbled(bytes: 10, every: .seconds(1)))
        let client = try await HostileClient(to: server.endpoint)
        await client.perform(
            .glued(.request(101, serial: 50, "slow"), .request(102, serial: 51, "slower"), .request(103, serial: 52))
        )
        #expect(try await client.response() == response(101, 50, "slow"))
        for _ in 0..<2 {
            try await clock.waitForSleepers()
            clock.advance(by: .seconds(1))
        }
        #expect(try await client.responses(2) == [response(102, 51, "slower"), response(103, 52)])
    }

    @Test(arguments: formats) func corruptsTheChecksumAndNothingElse(format: WireFormat) async throws {
        let server = try await MockServer(format: format)
        server.on(101, .glued(.echo.corrupted(), .echo))
        let client = try await HostileClient(to: server.endpoint, format: format)
        await client.perform(.request(101, serial: 50, "x"))
        if format.layout.checksum == nil {
            #expect(try await client.response().serial == 50)
        } else {
            let error = await #expect(throws: NothingHappened.self) { try await client.response() }
            #expect(error?.description.contains("checksum") == true)
        }
        #expect(try await client.response().payload == ByteBuffer(string: "x"))
    }

    @Test(arguments: formats) func announcesAnyLength(format: WireFormat) async throws {
        let server = try await MockServer(format: format)
        server.on(101, .echo.announcing(length: 0xFFFF_FFF0).then(.close))
        let client = try await HostileClient(to: server.endpoint, format: format)
        await client.perform(.request(101, serial: 50, "x"))
        await #expect(throws: NothingHappened.self) { try await client.response() }
        let word: [UInt8] = [0xFF, 0xFF, 0xFF, 0xF0]
        let bytes = try await client.receivedBytes
        #expect(bytes.indices.contains { bytes[$0...].starts(with: word) })
    }

    @Test func answersTwiceAndWithAnotherSerial() async throws {
        let server = try await MockServer()
        server.on(101, .glued(.echo.withSerial(4_000), .echo.twice()))
        let client = try await HostileClient(to: server.endpoint)
        await client.perform(.request(101, serial: 50, "x"))
        #expect(try await client.responses(3).map(\.serial) == [4_000, 50, 50])
    }

    @Test func heldRequestsAreAnsweredInTheOrderThatWasAskedFor() async throws {
        for (order, expected) in [
            (MockReleaseOrder.inOrder, [50, 51, 52, 53]), (.reversed, [53, 52, 51, 50]),
        ] {
            let server = try await MockServer(.echo.held(until: 4, release: order))
            let client = try await HostileClient(to: server.endpoint)
            await client.perform(.requests(101, serials: 50..<57))
            #expect(try await client.responses(4).map { Int($0.serial) } == expected)
            await client.perform(.request(101, serial: 57))
            #expect(Set(try await client.responses(4).map(\.serial)) == [54, 55, 56, 57])
        }
    }

    @Test func chanceIsTheSameForTheSameSeed() async throws {
        func run(seed: UInt64) async throws -> [Frame] {
            let server = try await MockServer(.echo.held(until: 20, release: .shuffled), seed: seed)
            server.on(102, .oneOf(.answer("a"), .answer("b"), .answer("c")))
            let client = try await HostileClient(to: server.endpoint)
            await client.perform(.glued(.requests(101, serials: 50..<70), .requests(102, serials: 70..<90)))
            return try await client.responses(40)
        }
        let one = try await run(seed: 1)
        #expect(one == (try await run(seed: 1)))
        #expect(one != (try await run(seed: 2)))
        #expect(Set(one.map(\.serial)) == Set(50..<90))
    }

    @Test func cutsFramesAndEndsTheConnectionInEveryWay() async throws {
        let server = try await MockServer()
        server.on(101, .echo.cut(after: 10).then(.close))
        server.on(102, .echo.cut(after: 10).then(.halfClose))
        server.on(103, .reset)
        for type in 101...103 as ClosedRange<UInt32> {
            let client = try await HostileClient(to: server.endpoint)
            await client.perform(.request(type, serial: 50, "x"))
            try await client.ended()
            #expect(try await client.receivedBytes.count == (type == 103 ? 0 : 10))
        }
        // After a half-close it still reads.
        server.on(104, .halfClose)
        let client = try await HostileClient(to: server.endpoint)
        await client.perform(.request(104, serial: 50))
        try await client.ended()
        await client.perform(.request(105, serial: 51))
        try await server.received(1, ofType: 105)
    }

    @Test func silenceIsSilenceUntilItWakesUp() async throws {
        let server = try await MockServer(.echo)
        server.once(101, .echo.then(.goSilent))
        let client = try await HostileClient(to: server.endpoint)
        await client.perform(.request(101, serial: 50, "before"))
        #expect(try await client.response() == response(101, 50, "before"))
        await client.perform(.request(101, serial: 51, "unread"))
        await server.perform(.push(2_001, "lost"))
        let other = try await HostileClient(to: server.endpoint)
        await other.perform(.request(101, serial: 50, "other"))
        #expect(try await other.response() == response(101, 50, "other"))
        #expect(!server.received.contains { $0.string == "unread" })
        try await server.connection(0).perform(.wakeUp)
        #expect(try await client.response() == response(101, 51, "unread"))
    }

    @Test func stopsReadingAndStillPushes() async throws {
        let server = try await MockServer(.echo)
        server.onOpen(number: 0, .stopReading)
        let client = try await HostileClient(to: server.endpoint)
        await client.perform(.request(101, serial: 50))
        try await server.connection(0).perform(.push(2_001, "news"))
        #expect(try await client.response() == response(2_001, FrameSerial.push, "news"))
        #expect(server.received.isEmpty)
    }

    @Test func refusesConnectionsForAWhileAndListensOnTheSamePort() async throws {
        let clock = VirtualClock()
        let server = try await MockServer(.echo, clock: clock)
        let endpoint = server.endpoint
        let client = try await HostileClient(to: endpoint)
        try await server.connection(0)
        try await server.refuseConnections()
        await #expect(throws: (any Error).self) { try await HostileClient(to: endpoint) }
        try await server.refuseConnections()
        // Open connections stay.
        await client.perform(.request(101, serial: 50))
        _ = try await client.response()
        try await server.acceptConnections()
        #expect(server.endpoint == endpoint)
        _ = try await HostileClient(to: endpoint)
        try await server.refuseConnections(for: .seconds(60))
        await #expect(throws: (any Error).self) { try await HostileClient(to: endpoint) }
        try await clock.waitForSleepers()
        clock.advance(by: .seconds(60))
        try await eventually("it listens again") { (try? await HostileClient(to: endpoint)) != nil }
    }

    // MARK: What came

    @Test func recordsWhatCameInOrderAndByConnection() async throws {
        let server = try await MockServer(.echo)
        let clients = [
            try await HostileClient(to: server.endpoint), try await HostileClient(to: server.endpoint),
        ]
        try await server.connection(1)
        for serial in 50..<60 as Range<UInt32> {
            for client in clients {
                await client.perform(.request(101, serial: serial, "x"))
                _ = try await client.response()
            }
        }
        await clients[0].perform(.request(102, serial: 60, "y").corrupted())
        let last = try await server.received(1, ofType: 102)[0]
        #expect(last.isCorrupt)
        #expect(last.string == "y")
        #expect(server.received.count == 21)
        #expect(Set(server.received.map(\.connection)) == [0, 1])
        #expect(try await server.received(10, onConnection: 1).map(\.serial) == Array(50..<60))
        #expect(server.connections.map(\.number) == [0, 1])
        await clients[1].perform(.close)
        await clients[0].perform(.reset)
        try await server.ended(connection: 0)
        try await server.ended(connection: 1)
        #expect(server.connections.isEmpty)
        #expect(server.acceptedCount == 2)
    }

    @Test func waitingForWhatDoesNotComeSaysWhatCame() async throws {
        let server = try await MockServer(.echo)
        let client = try await HostileClient(to: server.endpoint)
        await client.perform(.request(101, serial: 50, "x"))
        _ = try await client.response()
        let error = await #expect(throws: NothingHappened.self) {
            try await server.received(2, ofType: 101, within: .milliseconds(10))
        }
        #expect(error?.description.contains("2 frames of type 101") == true)
        #expect(error?.description.contains("type 101 serial 50 1 B on connection 0") == true)
        let waiting = Task { try await server.received(2) }
        waiting.cancel()
        await #expect(throws: CancellationError.self) { try await waiting.value }
    }

    // MARK: Life

    @Test func endsWithShutdownAndWithTheLastReference() async throws {
        var server: MockServer? = try await MockServer(.echo)
        let endpoint = try #require(server?.endpoint)
        let client = try await HostileClient(to: endpoint)
        await client.perform(.request(101, serial: 50))
        _ = try await client.response()
        server = nil
        try await client.ended()
        try await eventually("the port is closed") { (try? await HostileClient(to: endpoint)) == nil }

        let other = try await MockServer(.echo.delayed(by: .seconds(3_600)))
        let late = try await HostileClient(to: other.endpoint)
        await late.perform(.request(101, serial: 50))
        try await other.received(1)
        await other.shutdown()
        await other.shutdown()
        try await late.ended()
    }

    @Test func listensWhereTheOptionSays() async throws {
        let server = try await MockServer()
        let port = server.endpoint.port
        await #expect(throws: (any Error).self) { try await MockServer(port: port) }
        // The port is kept for the second server until the first stops listening.
        try await server.refuseConnections()
        #if os(Linux)
        let other = try await MockServer(.echo, port: port)
        #expect(other.endpoint == server.endpoint)
        #endif
    }
}
