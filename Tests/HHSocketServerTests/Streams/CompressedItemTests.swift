// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Items on connections whose hello has agreed on compression.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct CompressedItemTests {
    private static let features = ["metadata", "streams", "compression"]

    private static func compressed(_ body: ByteBuffer) throws -> ByteBuffer {
        try #require(Envelope.deflate(body, level: 1))
    }

    private static func send(_ body: ByteBuffer, _ serial: UInt32 = 50, on client: StreamClient) async throws {
        await client.send(FrameType.item | FrameType.compressionFlag, serial, try Self.compressed(body))
    }

    @Test(arguments: [HandlerExecutor.global, .connection])
    func itemsAreCompressedBothWays(_ executor: HandlerExecutor) async throws {
        let body = ByteBuffer(repeating: 120, count: 50_000)
        try await withStreams(features: Self.features, on: executor) { client, server in
            #expect(client.reply.features.contains("compression"))
            try await client.open(StreamCall.echo)
            for _ in 0..<3 {
                try await Self.send(body, on: client)
                let item = try await client.answer()
                #expect((item.serial, item.status) == (50, .partial))
                #expect(item.type == StreamCall.echo | FrameType.compressionFlag)
                #expect(try Envelope.inflate(item.payload, limit: 50_000) == body)
            }
            // A short item is not compressed.
            await client.item(50, "short")
            try await client.expectItem(50, "short")
            await client.end()
            try await client.expectEnd()
            try await server.becomesIdle()
        }
    }

    @Test(arguments: [HandlerExecutor.global, .connection])
    func anItemThatBecomesTooLongIsAnswered301(_ executor: HandlerExecutor) async throws {
        let notes = StreamNotes()
        let limits = SocketServer.Configuration.limited { $0.maximumPayloadLength = 10_000 }
        try await withStreams(limits, notes, features: Self.features, on: executor) { client, server in
            try await client.open(StreamCall.read)
            try await Self.send(ByteBuffer(repeating: 120, count: 10_001), on: client)
            try await client.expectEnd(50, .illegalLength)
            try await notes.expect("failed 50 301")
            try await client.expectService()
            try await server.becomesIdle()
        }
    }

    @Test(arguments: [HandlerExecutor.global, .connection])
    func falselyCompressedItemIsAnswered303(_ executor: HandlerExecutor) async throws {
        let notes = StreamNotes()
        try await withStreams(.init(), notes, features: Self.features, on: executor) { client, server in
            for garbage in [ByteBuffer(), ByteBuffer(string: "garbage"), ByteBuffer(repeating: 255, count: 100_000)] {
                try await client.open(StreamCall.read)
                await client.send(FrameType.item | FrameType.compressionFlag, 50, garbage)
                try await client.expectEnd(50, .illegalFormat)
                try await client.expectService()
            }
            try await notes.expect("failed 50 303")
            try await server.becomesIdle()
            #expect(server.statistics[.illegalRequests] == 3)
        }
    }

    @Test func itemInAHandlerCountsAsHeld() async throws {
        let (taken, next) = (Gate(), Gate())
        var router = makeStreamRouter()
        router.stream(StreamCall.read, kind: .clientStreaming) { stream, _ in
            var iterator = stream.items.makeAsyncIterator()
            let item = try await iterator.next()
            taken.open()
            try await next.wait()
            let more = try await iterator.next()
            return ByteBuffer(string: "\(item?.readableBytes ?? 0) \(more?.readableBytes ?? 0)")
        }
        try await withServer(.init(), router) { server in
            let client = try await StreamClient(server, features: Self.features)
            try await client.open(StreamCall.read)
            try await Self.send(ByteBuffer(repeating: 120, count: 8_000_000), on: client)
            try await taken.wait()
            try await eventually("it counts as held") { server.bufferedBytes >= 8_000_000 }
            next.open()
            try await eventually("it is given back once the next is asked for") { server.bufferedBytes < 1_000_000 }
            await client.item(50, "x")
            await client.end()
            try await client.expectEnd(50, .ok, "8000000 1")
            try await server.becomesIdle()
        }
    }

    @Test(arguments: [HandlerExecutor.global, .connection])
    func fewBytesDoNotBecomeMoreThanMayBeHeld(_ executor: HandlerExecutor) async throws {
        let notes = StreamNotes()
        let limits = SocketServer.Configuration.limited {
            $0.maximumPayloadLength = 10_000_000
            $0.maximumBufferedBytesPerConnection = 12_000_000
        }
        var router = makeStreamRouter(notes, on: executor)
        router.stream(StreamCall.hang, kind: .clientStreaming, on: executor) { stream, _ in
            for try await _ in stream.items {
                notes.note("has an item")
                try await untilCancelled()
            }
            return ByteBuffer()
        }
        try await withServer(limits, router) { server in
            let client = try await StreamClient(server, features: Self.features)
            try await client.open(StreamCall.hang, 51)
            try await Self.send(ByteBuffer(repeating: 120, count: 8_000_000), 51, on: client)
            try await notes.expect("has an item")
            try await client.open(StreamCall.read)
            try await Self.send(ByteBuffer(repeating: 120, count: 8_000_000), on: client)
            try await client.expectEnd(50, .overloaded)
            try await notes.expect("failed 50 503")
            try await client.expectService()
            await client.client.perform(.cancel(51))
            try await server.becomesIdle()
            #expect(server.statistics[.overloadsOfMemory] == 1)
        }
    }

    @Test func aHandlerThatIsCancelledGivesBackWhatItHas() async throws {
        let taken = Gate()
        var router = makeStreamRouter()
        router.stream(StreamCall.read, kind: .clientStreaming) { stream, _ in
            for try await _ in stream.items {
                taken.open()
                try await untilCancelled()
            }
            return ByteBuffer()
        }
        try await withServer(.init(), router) { server in
            let client = try await StreamClient(server, features: Self.features)
            try await client.open(StreamCall.read)
            try await Self.send(ByteBuffer(repeating: 120, count: 8_000_000), on: client)
            try await taken.wait()
            await client.client.perform(.cancel(50))
            try await client.expectService()
            try await server.becomesIdle()
        }
    }
}
