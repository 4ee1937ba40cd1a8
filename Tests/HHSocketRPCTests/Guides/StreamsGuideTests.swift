// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketTesting
import TestSupport
import Testing

/// The examples of the client's part of `Streams.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StreamsGuideTests {
    @Test func everyExampleOfThePartIsInThisFile() throws {
        #expect(try DocumentationPage(guide: "Streams", section: "Streams of a client").shortcomings() == [])
    }

    /// A server with the built-in streams of `hhsocket serve` that the examples require.
    private func connect() async throws -> (MockServer, SocketClient) {
        let server = try await MockServer()
        server.acceptHello(features: [.metadata, .compression, .streams])
        server.on(
            1_010,
            .respond { opening in
                let item = Frame(
                    type: 1_010,
                    serial: opening.serial,
                    status: .partial,
                    payload: ByteBuffer(string: String(repeating: "x", count: 16))
                )
                return .glued(.frame(item), .frame(item), .frame(item), .answer(""))
            }
        )
        server.on(1_011, .drop)
        server.on(1_012, .drop)
        // Items are echoed; the end of the items is the end of the stream.
        server.on(
            FrameType.item,
            .respond { item in
                .frame(Frame(type: 1_012, serial: item.serial, status: .partial, payload: item.body))
            }
        )
        server.on(
            FrameType.end,
            .respond { end in .frame(Frame(type: 1_012, serial: end.serial)) }
        )
        var configuration = SocketClient.Configuration(servers: [server.endpoint])
        configuration.timeout = patience
        configuration.streams = StreamPolicy()
        let client = SocketClient(configuration: configuration)
        client.connect()
        return (server, client)
    }

    @Test func items() async throws {
        let (server, client) = try await self.connect()

        // Both sides send items.
        let stream = try await client.stream(for: SocketRequest(type: 1_012))
        try await stream.send(ByteBuffer(string: "one"))
        try await stream.send(ByteBuffer(string: "two"))
        stream.finish()
        for try await item in stream.items { print(String(buffer: item)) }
        print(try await stream.response.metadata)

        stream.onDraining { print("goes on elsewhere, soon") }
        try await eventually("the items are counted") { client.statistics.receivedItems == 2 }
        withExtendedLifetime(server) {}
    }

    @Test func itemsOfOneSide() async throws {
        let (server, client) = try await self.connect()
        server.on(FrameType.item, .drop)

        // The server sends items, and the client one message.
        let numbers = try await client.stream(for: SocketRequest(type: 1_010, body: "3 16"), kind: .serverStreaming)
        for try await number in numbers.items { print(number.readableBytes) }

        // The client sends items, and the server one message.
        let upload = try await client.stream(for: SocketRequest(type: 1_011), kind: .clientStreaming)
        for _ in 0..<3 { try await upload.send(ByteBuffer(repeating: 7, count: 65_536)) }
        upload.finish()
        print(try await upload.response.string)

        try await eventually("the items are counted") {
            client.statistics.receivedItems == 3 && client.statistics.sentItems == 3
        }
    }

    @Test func callbacks() async throws {
        let (server, client) = try await self.connect()

        let other = client.openStream(for: SocketRequest(type: 1_012)) { item in
            print(String(buffer: item))
        } completionHandler: { result in
            print(result)
        }
        other.send(ByteBuffer(string: "one")) { result in print(result) }
        other.pause()
        other.resume()
        other.finish()

        _ = try await other.response
        try await eventually("the items are counted") { client.statistics.receivedItems == 1 }
        withExtendedLifetime(server) {}
    }
}
