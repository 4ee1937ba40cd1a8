// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// The ends of streams, which leave nothing behind.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ServerStreamEndTests {
    @Test func aCancelEndsAStreamAndItsTask() async throws {
        let notes = StreamNotes()
        try await withStreams(.init(), notes) { client, server in
            try await client.open(StreamCall.hang, 50)
            try await notes.expect("hangs 50")
            await client.item(50, "unread")
            await client.client.perform(.cancel(50))
            try await notes.expect("cancelled 50")
            try await server.becomesIdle()
            try await eventually("the cancel is counted") { server.statistics[.cancelledRequests] == 1 }
            // No further answer is sent.
            await client.send(StreamCall.plain, 51)
            #expect(try await client.answer().serial == 51)
        }
    }

    @Test func theEndOfAConnectionEndsItsStreams() async throws {
        let notes = StreamNotes()
        try await withStreams(.init(), notes) { client, server in
            try await client.open(StreamCall.hang, 50)
            try await client.open(StreamCall.gather, 51)
            await client.item(51, "x")
            try await notes.expect("hangs 50")
            await client.client.perform(.reset)
            try await notes.expect("cancelled 50")
            try await eventually("the connection is gone") { server.connectionCount == 0 }
            try await server.becomesIdle()
        }
    }

    @Test func aHandlerThatReturnsBeforeTheItemsHaveEndedEndsTheStream() async throws {
        try await withStreams { client, server in
            try await client.open(StreamCall.endEarly)
            for item in ["a", "b", "c"] { await client.item(50, item) }
            try await client.expectItem(50, "a")
            try await client.expectEnd()
            // Late items are ignored.
            await client.item(50, "d")
            await client.end()
            await client.send(StreamCall.plain, 51)
            #expect(try await client.answer().serial == 51)
            try await server.becomesIdle()
        }
    }

    @Test func lateItemsAreNoFloodOfFrames() async throws {
        var configuration = SocketServer.Configuration()
        configuration.limits.unproductiveFrameRate = RequestRate(perSecond: 0.001, burst: 100)
        try await withStreams(configuration) { client, server in
            try await client.open(StreamCall.endEarly)
            await client.item(50, "a")
            try await client.expectItem(50, "a")
            try await client.expectEnd()
            for _ in 0..<1_000 { await client.item(50, "late") }
            await client.send(StreamCall.plain, 51)
            #expect(try await client.answer().serial == 51)
            // More items than it had credit for.
            for _ in 0..<20 { await client.item(50, length: 60_000) }
            for _ in 0..<1_500 { await client.item(9_999, "nobody's") }
            try await client.client.ended()
            #expect(server.statistics[.frameFloods] == 1)
        }
    }

    @Test func errorOfAHandlerIsTheFinalStatus() async throws {
        var router = makeStreamRouter()
        router.mapErrors { $0 is CancellationError ? StatusError(.database) : nil }
        try await withServer(.init(), router) { server in
            let client = try await StreamClient(server)
            for (serial, item, status) in [
                (50, "status", Status.noPermission), (51, "error", .unknown),
            ] as [(UInt32, String, Status)] {
                try await client.open(StreamCall.fail, serial)
                await client.item(serial, item)
                let end = try await client.answer()
                let envelope = try Envelope.open(end, agreedFlags: FrameType.metadataFlag, maximumBodyLength: 1_000)
                #expect((end.serial, end.status) == (serial, status))
                #expect(envelope.frame.payload.readableBytes == 0)
                #expect(envelope.metadata?.values == ["why": "because"])
            }
            #expect(server.statistics[.handlerErrors] == 1)
            try await server.becomesIdle()
        }
    }

    @Test func aDeadlineCoversTheWholeStream() async throws {
        let notes = StreamNotes()
        try await withStreams(.init(), notes) { client, server in
            try await client.open(StreamCall.hang, 50, "", WireMetadata(deadline: 200))
            try await client.expectEnd(50, .deadlineExceeded)
            try await notes.expect("cancelled 50")
            try await server.becomesIdle()
            #expect(server.statistics[.deadlinesExceeded] == 1)
        }
    }

    @Test func aStreamThatDoesNotMoveEnds() async throws {
        let notes = StreamNotes()
        var configuration = SocketServer.Configuration()
        configuration.streams = StreamPolicy(idleLimit: .milliseconds(200))
        try await withStreams(configuration, notes) { client, server in
            try await client.open(StreamCall.hang, 50)
            try await client.expectEnd(50, .deadlineExceeded)
            try await notes.expect("cancelled 50")
            try await server.becomesIdle()
            #expect(server.statistics[.idleStreams] == 1)
        }
    }
}
