// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// The handshake before anything else is sent, and its effects on the connection.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct HelloTests {
    private static let tenant = ["tenant": "acme"]

    private func request(_ type: UInt32 = 101, metadata: [String: String] = HelloTests.tenant) -> SocketRequest {
        var request = SocketRequest(type: type, body: "hi")
        request.metadata = metadata
        return request
    }

    /// The error of the first attempt to connect.
    private func failure(
        _ server: MockServer,
        _ configure: (inout SocketClient.Configuration) -> Void
    ) async throws -> SocketError {
        var configuration = SocketClient.Configuration(servers: [server.endpoint])
        configuration.hello = HelloPolicy()
        configure(&configuration)
        let client = SocketClient(configuration: configuration)
        let events = client.events
        client.connect()
        return try await failedAttempt(of: events)
    }

    private func reply(_ change: (inout WireHelloReply) -> Void) throws -> MockServer.Reaction {
        var reply = WireHelloReply()
        reply.version = 1
        change(&reply)
        return try .answer(reply)
    }

    // MARK: What is said

    @Test func helloIsSentFirstThenTheGatesFramesThenCalls() async throws {
        let server = try await MockServer(.echo)
        server.acceptHello()
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.hello = HelloPolicy()
            $0.socket.gate = HandshakeGate { handshake in _ = try await handshake.exchange(type: 17) }
        }
        #expect(try await client.data(for: self.request()).string == "hi")
        #expect(server.received.prefix(3).map(\.type) == [3, 17, 101])
        #expect(server.received.first?.serial == 3)
        #expect(server.received.first { $0.type == 101 }?.metadata == Self.tenant)
    }

    @Test func noHelloIsSentByDefault() async throws {
        let server = try await MockServer(.echo)
        server.acceptHello()
        let client = SocketClient.connecting(to: server.endpoint)
        _ = try await client.data(for: SocketRequest(type: 101))
        #expect(!server.received.contains { $0.type == FrameType.hello })
    }

    @Test func theSessionTokenIsAskedForAtEachConnectionAndSent() async throws {
        let server = try await MockServer(.echo)
        server.acceptHello()
        server.once(102, .close)
        let asked = NIOLockedValueBox<UInt8>(0)
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.hello = HelloPolicy(features: [.metadata]) {
                [
                    asked.withLockedValue { count in
                        count += 1
                        return count
                    }
                ]
            }
        }
        _ = try await client.data(for: self.request())
        _ = try? await client.data(for: self.request(102))
        let hellos = try await server.received(2, ofType: FrameType.hello)
        let said: [WireHello] = try hellos.map { try $0.body.message() }
        #expect(said.map { Array($0.sessionToken) } == [[1], [2]])
        #expect(said[0].features == ["metadata"])
        #expect(said[0].version == 1)
    }

    @Test func aMissingSessionTokenEndsTheAttemptWithItsError() async throws {
        let server = try await MockServer(.echo)
        let error = try await self.failure(server) {
            $0.hello = HelloPolicy { throw HandshakeRefusal(.stop, "nobody is signed in") }
        }
        #expect(error.code == .handshakeRefused)
        #expect(error.message.contains("nobody is signed in"))
        #expect(server.received.isEmpty)
    }

    @Test(arguments: ["standard", "plain", "tgcd"]) func everyFormatThatHasRoomForItDoesIt(_ name: String) async throws
    {
        let format = try #require(WireFormat.presets[name])
        let server = try await MockServer(.echo.withMetadata(["region": "eu"]).compressed(), format: format)
        server.acceptHello()
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.socket.wireFormat = format
            $0.hello = HelloPolicy(isRequired: true)
            $0.compression = CompressionPolicy(minimumLength: 0)
        }
        var request = self.request()
        request.body = ByteBuffer(repeating: 7, count: 5_000)
        let response = try await client.data(for: request)
        #expect(response.body == request.body)
        #expect(response.metadata == ["region": "eu"])
        let received = try #require(server.received.first { $0.type == 101 })
        #expect(received.metadata == Self.tenant)
        #expect(received.isCompressed)
    }

    // MARK: Answers

    @Test func aServerThatRefusesHelloIsUsedWithoutIt() async throws {
        let server = try await MockServer(.echo)
        server.on(FrameType.hello, .status(.undefinedType))
        let client = SocketClient.connecting(to: server.endpoint) { $0.hello = HelloPolicy() }
        #expect(try await client.data(for: SocketRequest(type: 101, body: "hi")).string == "hi")
        let error = try await socketError { () throws(SocketError) in _ = try await client.data(for: self.request()) }
        #expect(error.code == .featureNotAgreed)
        #expect(error.delivery == .notSent)
        #expect(error.message.contains("answered hello with an error"))
        #expect(error.endpoint == server.endpoint)
    }

    @Test func aServerThatRefusesHelloIsNotUsedWhereItIsRequired() async throws {
        let server = try await MockServer(.echo)
        server.on(FrameType.hello, .status(.undefinedType))
        let error = try await self.failure(server) { $0.hello?.isRequired = true }
        #expect(error.code == .handshakeRefused)
        #expect(error.message.contains("status 401"))
    }

    @Test func aServerThatDoesNotAnswerHelloIsReportedWhenTimeIsUp() async throws {
        let server = try await MockServer(.echo)
        let error = try await self.failure(server) { $0.hello?.timeout = .milliseconds(50) }
        #expect(error.code == .handshakeTimeout)
        #expect(error.message.contains("did not answer hello within 0.05 seconds"))
        #expect(error.message.contains("turn hello off"))
        #expect(error.endpoint == server.endpoint)
    }

    @Test func aGateThatTakesTooLongAfterHelloIsNotHellosFault() async throws {
        let server = try await MockServer(.drop)
        server.acceptHello()
        let error = try await self.failure(server) {
            $0.hello?.timeout = .milliseconds(25)
            $0.socket.gate = HandshakeGate(timeout: .milliseconds(25)) { handshake in
                _ = try await handshake.exchange(type: 17)
            }
        }
        // Unless the machine was too slow for hello itself.
        if server.received.contains(where: { $0.type == 17 }) {
            #expect(error.message.contains("the handshake took longer than 0.05 seconds"))
        }
        #expect(error.code == .handshakeTimeout)
    }

    @Test func anAnswerToHelloWithAWrongChecksumEndsTheAttempt() async throws {
        let server = try await MockServer(.echo)
        server.on(FrameType.hello, try self.reply { _ in }.corrupted())
        let error = try await self.failure(server) { _ in }
        #expect(error.code == .handshakeRefused)
        #expect(error.message.contains("came with a wrong checksum: received 0x"))
        #expect((error.underlying as? SocketError)?.code == .checksumMismatch)
    }

    @Test func repliesThatNoServerMayGiveEndTheAttempt() async throws {
        let cases: [(MockServer.Reaction, String)] = [
            (try self.reply { $0.features = ["metadata", "streams"] }, "\"streams\""),
            (try self.reply { $0.version = 2 }, "version 2"),
            (try self.reply { $0.version = 0 }, "version 0"),
            (.answer(ByteBuffer(bytes: [0xFF])), "cannot be read"),
        ]
        for (reaction, words) in cases {
            let server = try await MockServer(.echo)
            server.on(FrameType.hello, reaction)
            let error = try await self.failure(server) { _ in }
            #expect(error.code == .handshakeRefused)
            #expect(error.message.contains(words), "\(error)")
        }
    }

    @Test func unrequestedFramesOfTypeThreeAreIgnored() async throws {
        let server = try await MockServer(.echo)
        server.acceptHello()
        let stray = MockServer.Reaction.frame(Frame(type: FrameType.hello, serial: FrameSerial.hello))
        server.onOpen(stray)
        server.on(101, .glued(stray, .echo, stray))
        let client = SocketClient.connecting(to: server.endpoint)
        for _ in 0..<3 { #expect(try await client.data(for: SocketRequest(type: 101, body: "hi")).string == "hi") }
        #expect(client.statistics.unknownResponses == 0)
    }

    // MARK: What comes together with the reply

    @Test func aPushThatComesWithTheReplyIsReadAsWasAgreed() async throws {
        let server = try await MockServer(.echo)
        let push = MockServer.Reaction.push(2_001, ByteBuffer(repeating: 7, count: 500))
        server.on(
            FrameType.hello,
            .glued(
                try self.reply { $0.features = ["metadata", "compression"] },
                push.withMetadata(["n": "1"]).compressed()
            )
        )
        let push1 = try await self.pushes(1, from: server).first
        #expect(push1?.type == 2_001)
        #expect(push1?.body == ByteBuffer(repeating: 7, count: 500))
        #expect(push1?.metadata == ["n": "1"])
    }

    /// After a wrong checksum the plausibility of flags is checked; here the reply immediately precedes it.
    @Test func aFlagRightBehindTheReplyAndAWrongChecksumMakesSense() async throws {
        let server = try await MockServer(.echo)
        let push = MockServer.Reaction.push(2_001, "news")
        server.on(
            FrameType.hello,
            .glued(try self.reply { $0.features = ["metadata"] }, push.corrupted(), push.withMetadata(["n": "2"]))
        )
        #expect(try await self.pushes(1, from: server).first?.metadata == ["n": "2"])
        #expect(server.acceptedCount == 1)
    }

    private func pushes(_ count: Int, from server: MockServer) async throws -> [SocketPush] {
        var configuration = SocketClient.Configuration(servers: [server.endpoint])
        configuration.hello = HelloPolicy()
        // Its answer would be another read.
        configuration.socket.heartbeat = nil
        let client = SocketClient(configuration: configuration)
        let pushes = client.pushes(ofType: 2_001)
        client.connect()
        return try await withDeadline("the pushes") {
            var came: [SocketPush] = []
            for await push in pushes {
                came.append(push)
                if came.count == count { break }
            }
            return came
        }
    }

    @Test func theGateGetsAnAnswerAsItWasMeant() async throws {
        let server = try await MockServer(.drop)
        server.acceptHello()
        let answer = ByteBuffer(repeating: 9, count: 3_000)
        server.on(
            17,
            .glued(MockServer.Reaction.answer(answer), .push(2_001, answer)).withMetadata(["a": "b"]).compressed()
        )
        let seen = NIOLockedValueBox<[Frame]>([])
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.hello = HelloPolicy()
            $0.socket.gate = HandshakeGate { handshake in
                let frames = [try await handshake.exchange(type: 17), try await handshake.nextFrame()]
                seen.withLockedValue { $0 = frames }
            }
        }
        try await eventually("ready") { if case .ready = client.state { true } else { false } }
        #expect(seen.withLockedValue { $0.map(\.type) } == [17, 2_001])
        #expect(seen.withLockedValue { $0.map(\.payload) } == [answer, answer])
    }

    @Test func aCompletedHandshakeIsReleased() async throws {
        let server = try await MockServer(.echo)
        server.acceptHello()
        let handshake = WeakReference<Handshake>()
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.hello = HelloPolicy()
            $0.socket.gate = HandshakeGate { handshake.set($0) }
        }
        _ = try await client.data(for: self.request())
        try await eventually("its release") { handshake.object == nil }
        #expect(server.acceptedCount == 1)
    }

    // MARK: Configurations that cannot work

    @Test func aFormatWithoutRoomForHelloIsAnError() async throws {
        let server = try await MockServer(.echo, format: .mars)
        let error = try await self.failure(server) { $0.socket.wireFormat = .mars }
        #expect(error.code == .invalidArgument)
        #expect(error.message.contains("mars"))
        #expect(error.message.contains("hello"))
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.socket.wireFormat = .mars
            $0.hello = HelloPolicy()
        }
        let call = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        #expect(call.code == .invalidArgument)
        #expect(call.delivery == .notSent)
        #expect(server.received.isEmpty)
    }

    @Test func aVersionThatIsNotSpokenHereIsAnError() async throws {
        let server = try await MockServer(.echo)
        let error = try await self.failure(server) { $0.hello?.minimumVersion = 2 }
        #expect(error.code == .invalidArgument)
        #expect(error.message.contains("minimumVersion"))
    }

    // MARK: Refused tokens

    /// A server that refuses all tokens but one.
    private func serverFor(_ token: UInt8) async throws -> MockServer {
        let server = try await MockServer(.echo)
        let accepted = try self.reply { $0.features = [] }
        server.on(
            FrameType.hello,
            .respond { request in
                let hello: WireHello? = try? request.body.message()
                return hello.map { Array($0.sessionToken) } == [token] ? accepted : .status(.noPermission).then(.close)
            }
        )
        return server
    }

    private func quick(_ configuration: inout SocketClient.Configuration) {
        configuration.socket.backoff = Backoff(base: .milliseconds(20), cap: .milliseconds(40))
        configuration.waitsForConnectivity = true
    }

    @Test func aRefusedTokenIsSaidAndNotOfferedAgain() async throws {
        let server = try await self.serverFor(2)
        let token = NIOLockedValueBox<UInt8>(1)
        let asked = Watched(0)
        var configuration = SocketClient.Configuration(servers: [server.endpoint])
        self.quick(&configuration)
        configuration.hello = HelloPolicy {
            asked.withLockedValue { $0 += 1 }
            return [token.withLockedValue { $0 }]
        }
        let client = SocketClient(configuration: configuration)
        let events = client.events
        client.connect()
        let error = try await failedAttempt(of: events)
        #expect(error.code == .handshakeRefused)
        #expect(error.message.contains("refused the session token"), "\(error.message)")
        // The closure is asked by the back-off, and no server is connected to meanwhile.
        try await asked.wait("further requests of a token") { $0 >= 5 }
        #expect(server.acceptedCount == 1)
        // The user's wish is an attempt, which is over when its hello has arrived.
        client.connect()
        try await server.received(2, ofType: FrameType.hello)
        #expect(server.acceptedCount == 2)
        token.withLockedValue { $0 = 2 }
        #expect(try await client.data(for: SocketRequest(type: 101, body: "hi")).string == "hi")
        #expect(server.acceptedCount == 3)
    }

    @Test(arguments: [true, false]) func withoutAClosureAttemptsStopUntilTheUserConnects(isRequired: Bool) async throws
    {
        let server = try await self.serverFor(2)
        var configuration = SocketClient.Configuration(servers: [server.endpoint])
        self.quick(&configuration)
        configuration.hello = HelloPolicy(isRequired: isRequired)
        let client = SocketClient(configuration: configuration)
        let events = client.events
        client.connect()
        let end = try await first(of: events, "the end of attempts") { if case .gaveUp = $0 { true } else { false } }
        guard case .gaveUp(let error) = end else { throw Unexpected(description: "\(end)") }
        #expect(error.code == .handshakeRefused)
        #expect(error.message.contains("requires a session token"), "\(error.message)")
        #expect(server.acceptedCount == 1)
        client.connect()
        try await eventually("another attempt") { server.acceptedCount == 2 }
    }

    @Test func anErrorOfTheTokenIsNoFaultOfTheServerAndNoOtherIsTried() async throws {
        let (one, other) = (try await self.serverFor(1), try await self.serverFor(1))
        let isLocked = NIOLockedValueBox(true)
        let asked = Watched(0)
        var configuration = SocketClient.Configuration(servers: [one.endpoint, other.endpoint])
        self.quick(&configuration)
        configuration.hello = HelloPolicy {
            asked.withLockedValue { $0 += 1 }
            guard !isLocked.withLockedValue({ $0 }) else { throw Unexpected(description: "the keychain is locked") }
            return [1]
        }
        let client = SocketClient(configuration: configuration)
        client.connect()
        try await asked.wait("five attempts") { $0 >= 5 }
        #expect(other.acceptedCount == 0)
        isLocked.withLockedValue { $0 = false }
        let answer = try await client.data(for: SocketRequest(type: 101, body: "hi", timeout: .seconds(60)))
        #expect(answer.endpoint == one.endpoint)
    }
}
