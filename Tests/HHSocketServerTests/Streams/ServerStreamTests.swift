// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// The three kinds of streams, on the level of frames.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ServerStreamTests {
    @Test(arguments: [HandlerExecutor.global, .connection])
    func aServerStreams(_ executor: HandlerExecutor) async throws {
        try await withStreams(on: executor) { client, server in
            try await client.open(StreamCall.count, 50, "3")
            for number in 0..<3 { try await client.expectItem(50, "\(number)") }
            let end = try await client.answer()
            let envelope = try Envelope.open(end, agreedFlags: FrameType.metadataFlag, maximumBodyLength: 1_000)
            #expect(end.status == .ok)
            #expect(envelope.frame.type == StreamCall.count)
            #expect(envelope.frame.payload.readableBytes == 0)
            #expect(envelope.metadata?.values == ["sent": "3"])
            try await server.becomesIdle()
            #expect(server.statistics[.streamsOpened] == 1)
        }
    }

    @Test(arguments: [HandlerExecutor.global, .connection])
    func aClientStreams(_ executor: HandlerExecutor) async throws {
        try await withStreams(on: executor) { client, server in
            try await client.open(StreamCall.gather)
            for item in ["a", "", "c"] { await client.item(50, item) }
            await client.end()
            try await client.expectEnd(50, .ok, "a;;c;")
            try await server.becomesIdle()
        }
    }

    @Test(arguments: [HandlerExecutor.global, .connection])
    func bothStream(_ executor: HandlerExecutor) async throws {
        try await withStreams(on: executor) { client, server in
            try await client.open(StreamCall.echo)
            for item in ["a", "b", ""] {
                await client.item(50, item)
                try await client.expectItem(50, item)
            }
            await client.end()
            try await client.expectEnd()
            try await server.becomesIdle()
        }
    }

    @Test func aSerialIsFreeOnceItsStreamHasEnded() async throws {
        try await withStreams { client, _ in
            for _ in 0..<3 {
                try await client.open(StreamCall.gather)
                await client.item(50, "x")
                await client.end()
                try await client.expectEnd(50, .ok, "x;")
            }
        }
    }

    /// It must not wake the first one, which would wake it in turn.
    @Test(arguments: [HandlerExecutor.global, .connection])
    func aSecondReaderFailsAndTheFirstGetsTheItem(_ executor: HandlerExecutor) async throws {
        var router = Router()
        router.stream(StreamCall.read, kind: .bidirectional, on: executor) { stream, _ in
            async let first = stream.items.first { _ in true }
            try await eventually("the first reader") { stream.exchange.waitsForClient }
            var second = stream.items.makeAsyncIterator()
            do throws(StatusError) {
                _ = try await second.next()
            } catch {
                try await stream.send(ByteBuffer(string: "\(error.status.rawValue)"))
            }
            if let item = try await first { try await stream.send(item) }
            return ByteBuffer()
        }
        try await withServer(.init(), router) { server in
            let client = try await StreamClient(server)
            try await client.open(StreamCall.read)
            try await client.expectItem(50, "404")
            await client.item(50, "x")
            try await client.expectItem(50, "x")
        }
    }
}
