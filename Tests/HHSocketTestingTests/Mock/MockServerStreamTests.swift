// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// The mock server's streams, with a client.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct MockServerStreamTests {
    /// The type of the streams.
    private static let type: UInt32 = 1_012

    private func connect(
        _ server: StreamPolicy = StreamPolicy(),
        client policy: StreamPolicy = StreamPolicy()
    ) async throws -> (MockServer, SocketClient) {
        let server = try await self.server(server)
        return (server, SocketClient.connecting(to: server.endpoint) { $0.streams = policy })
    }

    private func server(_ policy: StreamPolicy, webSocket path: String? = nil) async throws -> MockServer {
        let server = try await MockServer(.drop, webSocket: path)
        server.acceptHello(streams: policy)
        server.on(101, .echo)
        return server
    }

    private func open(_ client: SocketClient, _ kind: StreamKind = .bidirectional) async throws -> SocketStream {
        try await client.stream(for: SocketRequest(type: Self.type), kind: kind)
    }

    /// Returns the texts of the items until the end, and the error that ends them.
    private func texts(_ stream: SocketStream) async throws -> (texts: [String], error: SocketError?) {
        try await withDeadline("the end of the items") {
            var texts: [String] = []
            do throws(SocketError) {
                for try await item in stream.items { texts.append(String(buffer: item)) }
            } catch {
                return (texts, error)
            }
            return (texts, nil)
        }
    }

    private func send(_ count: Int, of length: Int = 84, on stream: SocketStream) async throws {
        for _ in 0..<count { try await stream.send(ByteBuffer(repeating: 1, count: length)) }
    }

    /// Waits until the client has received everything sent to it, and its own frames have arrived.
    private func fence(_ client: SocketClient) async throws {
        for _ in 0..<2 { _ = try await client.data(for: SocketRequest(type: 101)) }
    }

    // MARK: As it should be

    @Test(arguments: [nil, "/rpc"]) func itemsGoBothWaysAndTheAnswerHasTrailers(_ path: String?) async throws {
        let server = try await self.server(StreamPolicy(), webSocket: path)
        server.onItem(of: Self.type, .respond { .item($0.body) })
        server.onItemsEnded(of: Self.type, .status(.ok).withMetadata(["count": "2"]))
        let client = SocketClient.connecting(to: server.endpoint) { $0.streams = StreamPolicy() }
        let stream = try await self.open(client)
        for text in ["one", "two"] { try await stream.send(ByteBuffer(string: text)) }
        stream.finish()
        #expect(try await self.texts(stream).texts == ["one", "two"])
        #expect(try await stream.response.metadata == ["count": "2"])
        let items = try await server.receivedItems(2, of: Self.type)
        #expect(items.map(\.string) == ["one", "two"] && items[0].streamType == Self.type)
        #expect(server.received.last?.streamType == Self.type)
    }

    @Test func itemsAreTakenAndMoreIsGranted() async throws {
        let (server, client) = try await self.connect(StreamPolicy(streamWindow: 1_000, connectionWindow: 2_000))
        server.onItemsEnded(of: Self.type, .answer("enough"))
        let stream = try await self.open(client, .clientStreaming)
        try await self.send(100, on: stream)
        stream.finish()
        #expect(try await stream.response.string == "enough")
        #expect(try await server.receivedItems(100, of: Self.type).count == 100)
    }

    @Test func itemsOfStreamsThatAreOverAreTakenAsWell() async throws {
        let (server, client) = try await self.connect(StreamPolicy(connectionWindow: 1_000))
        server.on(Self.type, .stall)
        for _ in 0..<5 {
            let stream = try await self.open(client)
            try await self.send(5, on: stream)
            stream.cancel()
        }
        server.on(Self.type, .drop)
        server.onItemsEnded(of: Self.type, .status(.ok))
        let last = try await self.open(client)
        last.finish()
        _ = try await last.response
    }

    @Test func theNumberOfStreamsIsAgreedOn() async throws {
        let (server, client) = try await self.connect(StreamPolicy(maximumStreams: 1))
        let first = try await self.open(client)
        let second = client.openStream(for: SocketRequest(type: Self.type)) { _ in
        } completionHandler: { _ in
        }
        try await self.fence(client)
        #expect(server.received.filter { $0.type == Self.type }.count == 1)
        let serial = try await server.received(1, ofType: Self.type)[0].serial
        try await server.connection(0).perform(.status(.ok).withSerial(serial))
        _ = try await first.response
        try await server.received(2, ofType: Self.type)
        withExtendedLifetime(second) {}
    }

    @Test func withoutStreamsTheyAreNotAgreedOn() async throws {
        let server = try await MockServer()
        server.acceptHello()
        let client = SocketClient.connecting(to: server.endpoint) { $0.streams = StreamPolicy() }
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.stream(for: SocketRequest(type: Self.type))
        }
        #expect(error.code == .featureNotAgreed)
    }

    @Test func payloadsInPiecesAreRecordedWhole() async throws {
        let (server, client) = try await self.connect()
        let body = ByteBuffer(bytes: (0..<200_000).map { UInt8(truncatingIfNeeded: $0 &* 31) })
        #expect(try await client.data(for: SocketRequest(type: 101, body: body, options: .init())).body == body)
        let request = try await server.received(1, ofType: 101)[0]
        #expect(request.body == body && request.pieces == 4)
        let stream = try await self.open(client)
        try await stream.send(body)
        let item = try await server.receivedItems(1, of: Self.type)[0]
        #expect(item.body == body && item.pieces == 4)
    }

    @Test func itemsAndAnswersAreSentInPieces() async throws {
        let (server, client) = try await self.connect()
        server.on(
            Self.type,
            .glued(
                .item("abcdef").inPieces(of: 2),
                .item("").inPieces(of: 2),
                .item("half").inPieces(of: 2).unfinished(),
                .answer("the end").inPieces(of: 3).withMetadata(["a": "b"])
            )
        )
        let stream = try await self.open(client)
        #expect(try await self.texts(stream).texts == ["abcdef", ""])
        let response = try await stream.response
        #expect(response.string == "the end" && response.metadata == ["a": "b"])
    }

    // MARK: As it should not be

    @Test func aStalledStreamGetsNoCreditAndNoReaction() async throws {
        let (server, client) = try await self.connect(StreamPolicy(streamWindow: 1_000))
        server.once(Self.type, .glued(.item("first"), .stall))
        server.onItem(of: Self.type, .respond { .item($0.body) })
        let stalled = try await self.open(client)
        let sender = Task { try await self.send(20, on: stalled) }
        let items = try await server.receivedItems(10, of: Self.type)
        try await self.fence(client)
        #expect(server.received.filter { $0.serial == items[0].serial && $0.streamType != nil }.count == 10)
        #expect(client.statistics.receivedItems == 1)
        // Other streams continue.
        let other = try await self.open(client)
        try await self.send(20, on: other)
        // A test can let it continue.
        try await server.connection(0).perform(.credit(2_000).withSerial(items[0].serial))
        try await sender.value
        try await server.receivedItems(20, of: Self.type, serial: items[0].serial)
    }

    @Test func stalledStreamsHoldTheConnectionsWindow() async throws {
        let (server, client) = try await self.connect(StreamPolicy(connectionWindow: 1_000))
        server.once(Self.type, .stall)
        let stalled = try await self.open(client)
        try await self.send(10, on: stalled)
        let other = try await self.open(client)
        let sender = Task { try await self.send(5, on: other) }
        try await self.fence(client)
        #expect(try await server.receivedItems(10, of: Self.type).count == 10)
        #expect(server.received.filter { $0.streamType == Self.type }.count == 10)
        try await server.connection(0).perform(.connectionCredit(2_000))
        try await sender.value
        try await server.receivedItems(15, of: Self.type)
    }

    @Test func aStreamIsOverrun() async throws {
        let (server, client) = try await self.connect()
        server.once(Self.type, .overrunStream)
        let stream = try await self.open(client)
        let (texts, error) = try await self.texts(stream)
        #expect(texts.isEmpty && error?.code == .protocolViolation)
        let cancel = try await server.received(1, ofType: FrameType.cancel)[0]
        #expect(cancel.streamType == Self.type)
        try await self.fence(client)
        #expect(server.acceptedCount == 1)
    }

    @Test func aConnectionIsOverrun() async throws {
        let (server, client) = try await self.connect()
        server.once(Self.type, .overrunConnection)
        let stream = try await self.open(client)
        #expect(try await self.texts(stream).error?.code == .protocolViolation)
        try await server.ended(connection: 0)
    }

    @Test(arguments: MockServer.Reaction.MidStream.allCases)
    func aServerDiesInMidStream(_ point: MockServer.Reaction.MidStream) async throws {
        let (server, client) = try await self.connect()
        server.once(Self.type, .dieInMidStream(afterItems: 3, point))
        let (texts, error) = try await self.texts(self.open(client))
        #expect(texts == ["1", "2", "3"] && error?.code == .connectionLost)
        #expect(server.acceptedCount >= 1)
    }

    @Test(arguments: MockServer.Reaction.WrongCredit.allCases)
    func aWrongCreditMovesNothing(_ mistake: MockServer.Reaction.WrongCredit) async throws {
        let (server, client) = try await self.connect(StreamPolicy(streamWindow: 1_000))
        server.once(Self.type, .wrongCredit(mistake))
        let stream = try await self.open(client)
        let sender = Task { try await self.send(30, on: stream) }
        if mistake == .tooLittle {
            try await server.receivedItems(10, of: Self.type)
            try await self.fence(client)
            #expect(server.received.filter { $0.streamType == Self.type }.count == 10)
            stream.cancel()
            _ = await sender.result
        } else {
            // The right credits arrive as well.
            try await sender.value
            try await server.receivedItems(30, of: Self.type)
        }
        #expect(server.acceptedCount == 1)
    }

    @Test func withoutAStreamItsReactionsSendNothing() async throws {
        let (server, client) = try await self.connect()
        try await self.fence(client)
        await server.perform(.glued(.item("x"), .credit(1), .stall, .overrunStream, .status(.ok).withSerial(4_000)))
        try await self.fence(client)
        #expect(server.acceptedCount == 1 && client.statistics.unknownResponses == 0)
    }
}
