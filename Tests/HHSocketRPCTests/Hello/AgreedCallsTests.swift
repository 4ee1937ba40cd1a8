// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import InMemoryTracing
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// Calls on connections with and without agreements.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct AgreedCallsTests {
    private static let all: Set<ProtocolFeature> = [.metadata, .compression, .idempotency]
    private static let tenant = ["tenant": "acme"]

    private func connect(
        _ reaction: MockServer.Reaction = .echo,
        accepting features: Set<ProtocolFeature>? = AgreedCallsTests.all,
        _ configure: (inout SocketClient.Configuration) -> Void = { _ in }
    ) async throws -> (server: MockServer, client: SocketClient) {
        let server = try await MockServer(reaction)
        if let features { server.acceptHello(features: features) }
        let client = SocketClient.connecting(to: server.endpoint) {
            if features != nil { $0.hello = HelloPolicy() }
            configure(&$0)
        }
        return (server, client)
    }

    private func request(
        _ type: UInt32 = 101,
        _ body: ByteBuffer = ByteBuffer(string: "hi"),
        change: (inout SocketRequest) -> Void
    ) -> SocketRequest {
        var request = SocketRequest(type: type, body: body)
        change(&request)
        return request
    }

    private func error(_ client: SocketClient, _ request: SocketRequest) async throws -> SocketError {
        try await socketError { () throws(SocketError) in _ = try await client.data(for: request) }
    }

    // MARK: Requests

    @Test func theServerGetsMetadataDeadlineAndKey() async throws {
        let (server, client) = try await self.connect()
        let request = self.request {
            $0.metadata = ["tenant": "acme", "accept-language": "de, en"]
            $0.deadline = .now() + .seconds(60)
            $0.idempotencyKey = "k-1"
        }
        #expect(try await client.data(for: request).string == "hi")
        let received = try #require(try await server.received(1, ofType: 101).first)
        #expect(received.metadata == request.metadata)
        #expect(received.idempotencyKey == "k-1")
        let deadline = try #require(received.deadline)
        #expect(deadline > .zero && deadline <= .seconds(60))
        #expect(!received.isCompressed)
    }

    @Test func aPlainRequestStaysPlain() async throws {
        let (server, client) = try await self.connect { $0.compression = CompressionPolicy() }
        for _ in 0..<3 { _ = try await client.data(for: SocketRequest(type: 101, body: "hi")) }
        let received = try #require(try await server.received(3, ofType: 101).last)
        #expect(received.body == ByteBuffer(string: "hi"))
        #expect(received.metadata.isEmpty && received.deadline == nil && !received.isCompressed)
    }

    @Test func aRepeatHasTheSameKeyAndMayBeSentThoughTheFirstHadLeft() async throws {
        let (server, client) = try await self.connect {
            $0.retryPolicy = RetryPolicy(maximumAttempts: 3, backoff: Backoff(base: .milliseconds(1)))
        }
        server.once(101, .close)
        let request = self.request { $0.idempotencyKey = "k-1" }
        #expect(request.isIdempotent)
        #expect(try await client.data(for: request).string == "hi")
        #expect(try await server.received(2, ofType: 101).map(\.idempotencyKey) == ["k-1", "k-1"])
    }

    @Test func anInterceptorAddsMetadata() async throws {
        struct Tenant: SocketInterceptor {
            func intercept(_ request: SocketRequest, next: Next) async throws -> SocketResponse {
                var request = request
                request.metadata["tenant"] = "acme"
                var response = try await next(request)
                response.metadata["seen"] = "yes"
                return response
            }
        }
        let (server, client) = try await self.connect(.echo.withMetadata(["region": "eu"])) {
            $0.interceptors = [Tenant()]
        }
        let response = try await client.data(for: SocketRequest(type: 101))
        #expect(response.metadata == ["region": "eu", "seen": "yes"])
        #expect(response.endpoint == server.endpoint)
        #expect(try await server.received(1, ofType: 101).first?.metadata == Self.tenant)
    }

    @Test func optionsAreTheRequestsOwn() {
        var options = CallOptions()
        let deadline = NIODeadline.now() + .seconds(1)
        options.metadata = Self.tenant
        options.deadline = deadline
        options.idempotencyKey = "k-1"
        options.compresses = true
        let same = self.request(0, ByteBuffer()) {
            $0.metadata = Self.tenant
            $0.deadline = deadline
            $0.idempotencyKey = "k-1"
            $0.compresses = true
        }
        #expect(same.options == options)
        #expect(SocketRequest(type: 0, body: ByteBuffer(), options: options) == same)
    }

    // MARK: What no server would be sent

    @Test func wrongMetadataFailsAtOnce() async throws {
        let (server, client) = try await self.connect()
        let many = Dictionary(uniqueKeysWithValues: (0...64).map { ("n\($0)", "") })
        let cases: [(String, (inout SocketRequest) -> Void)] = [
            ("name", { $0.metadata = ["": "x"] }), ("\"Tenant\"", { $0.metadata = ["Tenant": "x"] }),
            ("name", { $0.metadata = ["a b": "x"] }), ("name", { $0.metadata = ["ä": "x"] }),
            ("name", { $0.metadata = ["a\u{0}": "x"] }),
            ("name", { $0.metadata = [String(repeating: "n", count: 129): "x"] }), ("65", { $0.metadata = many }),
            ("16384", { $0.metadata = ["a": String(repeating: "x", count: 16 << 10)] }),
            // Over the limit only because of its envelope.
            ("16384", { $0.metadata = ["a": String(repeating: "x", count: (16 << 10) - 2)] }),
            ("idempotencyKey", { $0.idempotencyKey = "" }),
            ("129", { $0.idempotencyKey = String(repeating: "k", count: 129) }),
        ]
        for (words, change) in cases {
            let error = try await self.error(client, self.request(change: change))
            #expect(error.code == .invalidArgument, "\(error)")
            #expect(error.delivery == .notSent)
            #expect(error.message.contains(words), "\(error)")
        }
        #expect(!server.received.contains { $0.type == 101 })
        let most = self.request { $0.metadata = ["a": String(repeating: "x", count: (16 << 10) - 9)] }
        #expect(try await client.data(for: most).string == "hi")
    }

    @Test func aBodyThatIsTooLargeIsNotMadeToFitByCompression() async throws {
        let (server, client) = try await self.connect { $0.socket.maximumPayloadLength = 10_000 }
        for compresses in [nil, true, false] {
            let request = self.request(101, ByteBuffer(repeating: 7, count: 10_001)) { $0.compresses = compresses }
            #expect(try await self.error(client, request).code == .frameTooLarge)
        }
        #expect(server.acceptedCount == 1)
    }

    // MARK: What was not agreed on

    private static let wishes:
        [(name: String, feature: ProtocolFeature, change: @Sendable (inout SocketRequest) -> Void)] =
            [
                ("metadata", .metadata, { $0.metadata = AgreedCallsTests.tenant }),
                ("deadline", .metadata, { $0.deadline = .now() + .seconds(60) }),
                ("idempotencyKey", .idempotency, { $0.idempotencyKey = "k" }),
                ("compresses", .compression, { $0.compresses = true }),
            ]

    @Test(arguments: AgreedCallsTests.wishes.indices) func unagreedOptionsAreNotSent(_ index: Int) async throws {
        let (name, feature, change) = Self.wishes[index]
        let others = Self.all.subtracting([feature])
        let cases: [(Set<ProtocolFeature>?, HelloPolicy?, String)] = [
            (nil, nil, "hello is off"), (others, HelloPolicy(), "did not accept"),
            (Self.all, HelloPolicy(features: others), "did not offer"),
        ]
        for (accepted, hello, why) in cases {
            let (server, client) = try await self.connect(accepting: accepted) { $0.hello = hello }
            let error = try await self.error(client, self.request(101, change: change))
            #expect(error.code == .featureNotAgreed, "\(error)")
            #expect(error.delivery == .notSent)
            #expect(error.notExecuted)
            for words in ["SocketRequest.\(name)", "\(feature)", "\(server.endpoint)", why] {
                #expect(error.message.contains(words), "\(error)")
            }
            #expect(try await client.data(for: SocketRequest(type: 102, body: "hi")).string == "hi")
            #expect(!server.received.contains { $0.type == 101 })
        }
    }

    @Test func compressionForAllIsLeftOutWhereItWasNotAgreedOn() async throws {
        for accepted in [nil, [.metadata]] as [Set<ProtocolFeature>?] {
            let (server, client) = try await self.connect(accepting: accepted) {
                $0.compression = CompressionPolicy(minimumLength: 0)
            }
            let body = ByteBuffer(repeating: 7, count: 5_000)
            #expect(try await client.data(for: SocketRequest(type: 101, body: body.readableBytesView)).body == body)
            #expect(try await server.received(1, ofType: 101).first?.isCompressed == false)
        }
    }

    // MARK: Compression

    @Test func bodiesFromTheThresholdOnAreCompressed() async throws {
        let (server, client) = try await self.connect {
            $0.compression = CompressionPolicy(minimumLength: 1_000, level: 6)
        }
        let cases: [(Int, Bool?, Bool)] = [
            (999, nil, false), (1_000, nil, true), (100_000, nil, true), (100_000, false, false), (100, true, true),
            (0, true, false),
        ]
        for (length, compresses, _) in cases {
            let request = self.request(101, ByteBuffer(repeating: 7, count: length)) { $0.compresses = compresses }
            #expect(try await client.data(for: request).body == request.body)
        }
        let received = try await server.received(cases.count, ofType: 101)
        #expect(received.map(\.isCompressed) == cases.map { $0.2 })
        #expect(received.map(\.body.readableBytes) == cases.map { $0.0 })
    }

    @Test func withoutAPolicyARequestMayStillAskForCompression() async throws {
        let (server, client) = try await self.connect()
        let request = self.request(101, ByteBuffer(repeating: 7, count: 500)) { $0.compresses = true }
        #expect(try await client.data(for: request).body == request.body)
        #expect(try await server.received(1, ofType: 101).first?.isCompressed == true)
    }

    @Test func propertiesOfATaskConcernTheBodyWithoutItsEnvelope() async throws {
        let (server, client) = try await self.connect()
        for (length, compresses) in [(10, false), (300_000, false), (300_000, true)] {
            var generator = SeededGenerator(seed: 5)
            // Compressible, but still more than one slice.
            let body = ByteBuffer(bytes: generator.bytes(length).map { $0 & 0x7F })
            let request = self.request(101, body) {
                $0.metadata = Self.tenant
                $0.compresses = compresses
            }
            let task = client.dataTask(with: request)
            task.resume()
            try await eventually("the answer") { task.state == .completed }
            #expect(task.response?.body == body)
            #expect(task.countOfBytesSent == length)
            #expect(task.metrics?.bytesSent == length)
        }
        #expect(server.acceptedCount == 1)
    }

    @Test func requestsInEnvelopesWaitBehindAServerThatDoesNotReadAndAreThenSent() async throws {
        let (server, client) = try await self.connect { $0.socket.maximumQueuedBytes = 512 << 20 }
        _ = try await client.data(for: SocketRequest(type: 101))
        await server.perform(.stopReading)
        let body = ByteBuffer(repeating: 7, count: 1 << 20)
        let tasks = (0..<32).map { number in
            client.dataTask(with: self.request(102, body) { $0.metadata = ["n": "\(number)"] })
        }
        for task in tasks { task.resume() }
        // All calls are being sent by then, and are more than the kernel takes.
        await withCheckedContinuation { continuation in
            _ = client.host.loop.submit(.closure { _ in continuation.resume() })
        }
        tasks[31].cancel()
        await server.perform(.wakeUp)
        try await eventually("the answers") { tasks.allSatisfy { $0.state == .completed } }
        #expect(tasks.prefix(31).allSatisfy { $0.response?.body == body })
        // A call that was cancelled before it was sent is never sent, not even after the others.
        _ = try await client.data(for: SocketRequest(type: 101))
        let numbers = server.received.filter { $0.type == 102 }.compactMap { $0.metadata["n"] }
        #expect(numbers == (0..<31).map { "\($0)" })
    }

    // MARK: Answers and pushes

    @Test func anAnswerHasMetadata() async throws {
        let body = ByteBuffer(repeating: 9, count: 20_000)
        let (server, client) = try await self.connect(.answer(body).withMetadata(["region": "eu"]).compressed())
        server.on(102, .answer("no", status: .noPermission).withMetadata(["why": "expired"]))
        server.on(103, .echo)
        let response = try await client.data(for: SocketRequest(type: 101))
        #expect(response.type == 101)
        #expect(response.body == body)
        #expect(response.metadata == ["region": "eu"])
        #expect(response.endpoint == server.endpoint)
        let error = try await self.error(client, SocketRequest(type: 102))
        #expect(error.code == .noPermission)
        #expect(error.metadata == ["why": "expired"])
        #expect(error.body == ByteBuffer(string: "no"))
        #expect(try await client.data(for: SocketRequest(type: 103)).metadata.isEmpty)
    }

    @Test func aHandlerGetsAnAnswerWithMetadata() async throws {
        let (server, client) = try await self.connect(.echo.withMetadata(["region": "eu"])) {
            $0.socket.callbackQueue = .socketThread
        }
        let metadata = Watched<[String: String]?>(nil)
        client.dispatch(SocketRequest(type: 101)) { result in
            metadata.withLockedValue { $0 = (try? result.get())?.metadata }
        }
        try await metadata.wait("the answer") { $0 == ["region": "eu"] }
        #expect(server.acceptedCount == 1)
    }

    @Test func aPartOfAStreamInAnEnvelopeIsStillAnError() async throws {
        let (server, client) = try await self.connect(.answer("part", status: .partial).withMetadata(["n": "1"]))
        let error = try await self.error(client, SocketRequest(type: 101))
        #expect(error.code == .server(.partial))
        #expect(error.metadata == ["n": "1"])
        #expect(server.acceptedCount == 1)
    }

    @Test func answerWithoutAgreementFailsOnlyItsCall() async throws {
        for accepted in [nil, [.compression]] as [Set<ProtocolFeature>?] {
            let (server, client) = try await self.connect(accepting: accepted)
            server.on(102, .echo.withMetadata(Self.tenant))
            let error = try await self.error(client, SocketRequest(type: 102))
            #expect(error.code == .protocolViolation)
            #expect(error.delivery == .answered)
            #expect(!error.notExecuted)
            #expect(error.message.contains("bit 31 (metadata), which hello did not agree on"), "\(error)")
            #expect(error.message.contains("type 102"))
            #expect(try await client.data(for: SocketRequest(type: 101, body: "hi")).string == "hi")
            #expect(server.acceptedCount == 1)
        }
    }

    @Test func anAnswerThatCannotBeReadFailsThatCallAlone() async throws {
        let (server, client) = try await self.connect()
        let cases: [(UInt32, [UInt8], String)] = [
            (FrameType.metadataFlag, [0, 0], "length of its metadata"),
            (FrameType.metadataFlag, [0, 0, 0, 9, 1], "announces 9 bytes"),
            (FrameType.metadataFlag, [0xFF, 0, 0, 0], "over the limit"),
            (FrameType.metadataFlag, [0, 0, 0, 1, 0x0A], "cannot be read"),
            (FrameType.compressionFlag, [1, 2, 3], "compressed body cannot be read"),
            (FrameType.compressionFlag, [], "end is missing"), (FrameType.continuesFlag, [], "bit 29"),
        ]
        for (flag, payload, words) in cases {
            server.once(
                102,
                .respond { request in
                    .frame(Frame(type: 102 | flag, serial: request.serial, payload: ByteBuffer(bytes: payload)))
                }
            )
            let error = try await self.error(client, SocketRequest(type: 102))
            #expect(error.code == .protocolViolation)
            #expect(error.message.contains(words), "\(error)")
            #expect(try await client.data(for: SocketRequest(type: 101, body: "hi")).string == "hi")
        }
        #expect(server.acceptedCount == 1)
    }

    @Test func anAnswerThatIsABombFailsThatCallAlone() async throws {
        let limit = 1 << 20
        let (server, client) = try await self.connect { $0.socket.maximumPayloadLength = limit }
        server.on(102, .answer(ByteBuffer(repeating: 0, count: 64 << 20)).compressed())
        server.on(103, .answer(ByteBuffer(repeating: 0, count: limit)).compressed())
        let error = try await self.error(client, SocketRequest(type: 102))
        #expect(error.code == .frameTooLarge)
        #expect(error.message.contains("\(limit)"))
        #expect(try await client.data(for: SocketRequest(type: 103)).body.readableBytes == limit)
        #expect(server.acceptedCount == 1)
    }

    @Test func lateAndUnknownAnswersInEnvelopesAreCountedAsOthersAre() async throws {
        let (server, client) = try await self.connect()
        server.on(102, .echo.withMetadata(Self.tenant).twice())
        server.on(103, .echo.withMetadata(Self.tenant).late())
        _ = try await client.data(for: SocketRequest(type: 102))
        try await eventually("the duplicate") { client.statistics.duplicateResponses == 1 }
        let task = client.dataTask(with: SocketRequest(type: 103))
        task.resume()
        try await server.received(1, ofType: 103)
        task.cancel()
        try await eventually("the late one") { client.statistics.lateResponses == 1 }
        await server.perform(
            .frame(Frame(type: 101 | FrameType.metadataFlag, serial: 9_999, payload: ByteBuffer(integer: UInt32.max)))
        )
        try await eventually("the unknown one") { client.statistics.unknownResponses == 1 }
    }

    @Test func aPushHasMetadataAndOneThatCannotBeReadIsCounted() async throws {
        let (server, client) = try await self.connect()
        let pushes = client.pushes(ofType: 2_001)
        _ = try await client.data(for: SocketRequest(type: 101))
        let bad = Frame(
            type: 2_001 | FrameType.compressionFlag,
            serial: FrameSerial.push,
            payload: ByteBuffer(string: "x")
        )
        await server.perform(.glued(.frame(bad), .push(2_001, "news").withMetadata(["n": "1"])))
        let push = try await first(of: pushes, "the push")
        #expect(push.metadata == ["n": "1"])
        #expect(push.string == "news")
        #expect(push.type == 2_001)
        #expect(client.statistics.malformedPushes == 1)
        #expect(client.statistics.pushes == 2)
        #expect(server.acceptedCount == 1)
    }

    // MARK: The agreement is the connection's

    @Test func eachConnectionHasWhatItsServerAgreedOn() async throws {
        let old = try await MockServer(.echo)
        old.acceptHello()
        old.on(102, .drop)
        let new = try await MockServer(.echo)
        new.acceptHello(features: [])
        let client = SocketClient.connecting(to: old.endpoint, new.endpoint) {
            $0.hello = HelloPolicy()
            $0.socket.drainTimeout = patience
        }
        let wish = self.request { $0.metadata = Self.tenant }
        let first = try await client.data(for: wish)
        let (here, there) = first.endpoint == old.endpoint ? (old, new) : (new, old)
        // The servers are tried in the list's order.
        try #require(here.endpoint == old.endpoint)

        let inFlight = client.dataTask(with: self.request(102) { $0.metadata = Self.tenant })
        inFlight.resume()
        let asked = try await old.received(1, ofType: 102)
        client.switchServer(to: there.endpoint)
        try await eventually("the switch") {
            if case .ready(let endpoint) = client.state { endpoint == there.endpoint } else { false }
        }
        #expect(try await self.error(client, wish).code == .featureNotAgreed)
        #expect(try await client.data(for: SocketRequest(type: 101)).endpoint == new.endpoint)

        let answer = Frame(type: 102, serial: asked[0].serial, payload: ByteBuffer(repeating: 7, count: 900))
        await old.perform(.frame(answer).withMetadata(["region": "eu"]).compressed())
        try await eventually("the answer of the old server") { inFlight.state == .completed }
        #expect(inFlight.response?.metadata == ["region": "eu"])
        #expect(inFlight.response?.body == answer.payload)
        #expect(inFlight.response?.endpoint == old.endpoint)
    }

    @Test func aReconnectNegotiatesAgain() async throws {
        let (server, client) = try await self.connect()
        let wish = self.request { $0.metadata = Self.tenant }
        _ = try await client.data(for: wish)
        server.acceptHello(features: [.compression])
        server.once(102, .close)
        _ = try? await client.data(for: SocketRequest(type: 102))
        var again = wish
        again.waitsForConnectivity = true
        let error = try await self.error(client, again)
        #expect(error.code == .featureNotAgreed)
        #expect(server.received.filter { $0.type == FrameType.hello }.count == 2)
    }

    // MARK: Tracing

    @Test func theSpansContextIsInTheMetadata() async throws {
        let tracer = InMemoryTracer()
        let (server, client) = try await self.connect { $0.tracer = tracer }
        _ = try await client.data(for: SocketRequest(type: 101))
        _ = try await client.data(
            for: self.request(102) { $0.metadata = ["tenant": "acme", "in-memory-span-id": "mine"] }
        )
        let plain = try #require(try await server.received(1, ofType: 101).first)
        let span = try #require(tracer.finishedSpans.first)
        #expect(plain.metadata.count == 2)
        #expect(plain.metadata["in-memory-trace-id"] == span.traceID)
        #expect(plain.metadata["in-memory-span-id"] == span.spanID)
        let own = try #require(try await server.received(1, ofType: 102).first)
        #expect(own.metadata["tenant"] == "acme")
        #expect(own.metadata["in-memory-span-id"] == "mine")
        #expect(own.metadata["in-memory-trace-id"] != nil)
    }

    @Test func withoutAnAgreementOrRoomTheContextIsLeftOut() async throws {
        let tracer = InMemoryTracer()
        for accepted in [nil, [.compression]] as [Set<ProtocolFeature>?] {
            let (server, client) = try await self.connect(accepting: accepted) { $0.tracer = tracer }
            #expect(try await client.data(for: SocketRequest(type: 101, body: "hi")).string == "hi")
            #expect(try await server.received(1, ofType: 101).first?.metadata == [:])
        }
        let (server, client) = try await self.connect { $0.tracer = tracer }
        let full = Dictionary(uniqueKeysWithValues: (0..<64).map { ("n\($0)", "") })
        _ = try await client.data(for: self.request { $0.metadata = full })
        #expect(try await server.received(1, ofType: 101).first?.metadata == full)
    }
}
