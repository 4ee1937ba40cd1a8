// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import TestSupport
import Testing

@testable import HHSocketTesting

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct HostileClientTests {
    @Test func sendsWhatIsGiven() async throws {
        let server = try await MockServer(.drop)
        let client = try await HostileClient(to: server.endpoint)
        let outcome = await client.perform(
            .glued(
                .request(101, serial: 50, "hello"),
                .request(102, serial: 7, "wrong").corrupted(),
                .cancel(99),
                .ping(),
                .requests(103, serials: 60..<63),
                .request(104, serial: 50, "slow").dribbled(bytes: 3),
                .request(105, serial: 51).times(2)
            )
        )
        #expect(outcome == .done)
        let received = try await server.received(10)
        #expect(received.map(\.type) == [101, 102, 2, 0, 103, 103, 103, 104, 105, 105])
        #expect(received.map(\.serial) == [50, 7, 99, 0, 60, 61, 62, 50, 51, 51])
        #expect(received.map(\.isCorrupt) == [false, true] + Array(repeating: false, count: 8))
    }

    @Test func waitsByItsClock() async throws {
        let clock = VirtualClock()
        let server = try await MockServer(.drop)
        let client = try await HostileClient(to: server.endpoint, clock: clock)
        async let outcome = client.perform(.request(101, serial: 50).delayed(by: .seconds(9)))
        try await clock.waitForSleepers()
        #expect(server.received.isEmpty)
        clock.advance(by: .seconds(9))
        #expect(await outcome == .done)
        try await server.received(1)
    }

    @Test func distinguishesAServerThatTakesNothingFromOneThatIsGone() async throws {
        let server = try await MockServer(.echo)
        server.onOpen(number: 0, .stopReading)
        let flood = HostileClient.Act.request(101, serial: 50, ByteBuffer(repeating: 1, count: 64 << 20))
        let stalled = try await HostileClient(to: server.endpoint)
        #expect(await stalled.perform(flood, within: .milliseconds(100)) == .stalled)
        server.on(102, .reset)
        let gone = try await HostileClient(to: server.endpoint)
        await gone.perform(.request(102, serial: 50))
        try await gone.ended()
        #expect(await gone.perform(flood) == .ended)
    }

    @Test func readsOnlyWhenAsked() async throws {
        let server = try await MockServer(.echo)
        let client = try await HostileClient(to: server.endpoint, reads: false)
        await client.perform(.request(101, serial: 50, "x"))
        try await server.received(1)
        await #expect(throws: NothingHappened.self) { try await client.response(within: .milliseconds(10)) }
        await client.perform(.startReading)
        #expect(try await client.response().serial == 50)
    }

    @Test func garbageIsTheSameForTheSameSeed() async throws {
        func garbage(_ seed: UInt64) -> ByteBuffer? {
            guard case .send(let sending) = HostileClient.Act.garbage(1_001, seed: seed).steps[0],
                case .raw(let bytes) = sending.source
            else { return nil }
            return bytes
        }
        #expect(garbage(1)?.readableBytes == 1_001)
        #expect(garbage(1) == garbage(1))
        #expect(garbage(1) != garbage(2))
    }

    @Test func comesFromTheAddressThatIsGiven() async throws {
        let server = try await MockServer(.echo)
        let client = try await HostileClient(to: server.endpoint, from: "127.0.0.1")
        #expect(client.localAddress?.ipAddress == "127.0.0.1")
        await client.perform(.request(101, serial: 50, "x"))
        #expect(try await client.response().serial == 50)
        await #expect(throws: (any Error).self) {
            // No machine has an address of TEST-NET-1 (RFC 5737).
            _ = try await HostileClient(to: server.endpoint, from: "192.0.2.1")
        }
    }

    @Test func keepsSendingUntilTheConnectionEnds() async throws {
        let server = try await MockServer(.drop)
        let client = try await HostileClient(to: server.endpoint)
        await client.perform(
            .request(101, serial: 50, "first").then(.keepSending(.ping(), every: .milliseconds(1)))
        )
        let received = try await server.received(4)
        #expect(received.map(\.type) == [101, 0, 0, 0])
        #expect(await client.perform(.close) == .done)
    }

    @Test func saysHelloAsAServerExpectsIt() async throws {
        let server = try await MockServer()
        server.acceptHello()
        let client = try await HostileClient(to: server.endpoint)
        await client.perform(.hello(.metadata, .compression, token: [1, 2, 3]))
        let answer = try await client.response()
        #expect(answer.type == FrameType.hello)
        #expect(answer.status == .ok)
    }

    @Test func sendsMessagesInFragments() async throws {
        let act = HostileClient.Act.text("hello").fragmented(length: 2)
        guard case .send(let sending) = act.steps[0], case .webSocket(let frames) = sending.source else {
            Issue.record("\(act.steps)")
            return
        }
        #expect(frames.map(\.opcode) == [.text, .continuation, .continuation])
        let server = try await MockWebSocketServer(.echo)
        let client = try await HostileClient(to: server.endpoint)
        await client.perform(act)
        #expect(try await client.message().text == "hello")
    }

    @Test func aClientThatDiscardsKeepsNothing() async throws {
        let server = try await MockServer(.echo)
        let client = try await HostileClient(to: server.endpoint)
        client.discardWhatComes()
        await client.perform(.request(101, serial: 50, "x"))
        try await server.received(1)
        await #expect(throws: NothingHappened.self) { try await client.response(within: .milliseconds(50)) }
    }

    /// Attacks with many bytes or writes, which take seconds against a mock that accepts and keeps everything. Other
    /// tests run them against a server; with more effort they run here too.
    private static let largeAttacks: Set<HostileClient.Attack> = [
        .hoardingReaders, .emptyRequests, .abandonedDeadlines, .helloCrowd, .repeatedHello, .freeFrames, .keptAnswers,
        .onceBusy, .proxyHeaders, .pingFlood, .requestAndCancel, .deflateBombs, .webSocketPings,
    ]

    @Test(arguments: HostileClient.Attack.allCases.filter { effort > 1 || !Self.largeAttacks.contains($0) })
    func attacksEndByThemselves(attack: HostileClient.Attack) async throws {
        let server = try await MockServer(.echo)
        let attackers = try await attack.run(against: server.endpoint, type: 101)
        #expect(!attackers.isEmpty)
    }

    /// The attacks on WebSockets, and some of each other kind; all with more effort.
    private static let attacksInMessages: [HostileClient.Attack] =
        HostileClient.Attack.onWebSockets.filter { !Self.largeAttacks.contains($0) }
        + [.halfFrames, .slowBody, .callFlood, .neverReads, .barelyMovingFrames, .idleCrowd, .abandonedHandshakes]

    @Test(arguments: effort > 1 ? HostileClient.Attack.allCases : Self.attacksInMessages)
    func attacksOnWebSocketsEndByThemselves(attack: HostileClient.Attack) async throws {
        let server = try await MockWebSocketServer(.echo, compression: WebSocketCompression())
        let attackers = try await attack.run(against: server.endpoint, type: 101)
        #expect(!attackers.isEmpty)
    }

    @Test func aCancelledAttackEndsSoon() async throws {
        let server = try await MockServer(.echo)
        let attack = Task {
            try await HostileClient.Attack.idleCrowd.run(against: server.endpoint, type: 101, strength: 1_000)
        }
        attack.cancel()
        #expect(try await attack.value.count <= 64)
    }
}
