// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Neither side sends more than the other is ready for.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ServerStreamWindowTests {
    @Test func aSlowClientStopsItsHandlerExactlyAtTheWindow() async throws {
        let notes = StreamNotes()
        // Each item costs 17 bytes: 10 of them fit, and the eleventh waits in `send`.
        try await withStreams(.init(), notes, window: 170) { client, server in
            try await client.open(StreamCall.count, 50, "10000")
            for number in 0..<10 { try await client.expectItem(50, "\(number)") }
            try await notes.expect("sent 9")
            await client.send(StreamCall.plain, 51, ByteBuffer(string: "still there"))
            #expect(try await client.answer().serial == 51)
            #expect(notes.lines.current.last == "sent 9")
            // Room for one more.
            await client.credit(50, 170 + 18)
            try await client.expectItem(50, "10")
            try await notes.expect("sent 10")
            await client.client.perform(.cancel(50))
            try await server.becomesIdle()
        }
    }

    @Test func theConnectionsWindowCountsForAllStreams() async throws {
        try await withStreams(window: 1 << 20, connectionWindow: 340) { client, server in
            try await client.open(StreamCall.count, 50, "10")
            for number in 0..<10 { try await client.expectItem(50, "\(number)") }
            try await client.expectTrailers(50)
            try await client.open(StreamCall.count, 51, "100")
            for number in 0..<10 { try await client.expectItem(51, "\(number)") }
            await client.send(StreamCall.plain, 52, ByteBuffer(string: "still there"))
            #expect(try await client.answer().serial == 52)
            await client.credit(0, 1 << 20)
            for number in 10..<100 { try await client.expectItem(51, "\(number)") }
            try await client.expectTrailers(51)
            try await server.becomesIdle()
        }
    }

    @Test func aClientGetsCreditWhenItsItemsAreTakenAndNotBefore() async throws {
        let gate = Gate()
        var router = Router()
        router.stream(StreamCall.gather, kind: .clientStreaming) { stream, _ in
            var iterator = stream.items.makeAsyncIterator()
            try await gate.wait()
            _ = try await iterator.next()
            _ = try await iterator.next()
            try await untilCancelled()
            return ByteBuffer()
        }
        router.handleSynchronously(StreamCall.plain) { request, _ in request.body }
        var configuration = SocketServer.Configuration()
        configuration.streams = StreamPolicy(streamWindow: 200_000)
        try await withServer(configuration, router) { server in
            let client = try await StreamClient(server)
            try await client.open(StreamCall.gather)
            // The whole window, in complete frames.
            for _ in 0..<4 { await client.item(50, length: 50_000 - 16) }
            await client.send(StreamCall.plain, 51)
            #expect(try await client.next().serial == 51)
            #expect(server.bufferedBytes >= 200_000)
            gate.open()
            // The last grant is used up, so that each taken item leads to another one.
            var granted: UInt64 = 200_000
            while granted < 300_000 {
                let credit = try await client.next()
                #expect((credit.type, credit.serial) == (FrameType.credit, 50))
                granted = StreamFrames.credit(in: credit.payload) ?? 0
            }
            #expect(granted == 300_000)
            await client.send(StreamCall.plain, 52)
            #expect(try await client.next().serial == 52)
            await client.client.perform(.cancel(50))
            try await server.becomesIdle()
        }
    }
}
