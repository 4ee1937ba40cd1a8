// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// The limits on the number of streams, and on their duration.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StreamLimitTests {
    @Test func streamsAboveTheLimitAreAnswered503UntilOneEnds() async throws {
        let notes = StreamNotes()
        try await withStreams(.streaming { $0.maximumStreams = 2 }, notes) { client, server in
            try await client.open(StreamCall.hang, 50)
            try await client.open(StreamCall.gather, 51)
            try await client.open(StreamCall.echo, 52)
            try await client.expectEnd(52, .overloaded)
            try await client.expectService()
            // A cancel makes room, and so does an end.
            await client.client.perform(.cancel(50))
            try await client.open(StreamCall.echo, 52)
            await client.item(52, "x")
            try await client.expectItem(52, "x")
            try await client.open(StreamCall.echo, 53)
            try await client.expectEnd(53, .overloaded)
            await client.end(51)
            try await client.expectEnd(51)
            try await client.open(StreamCall.gather, 53)
            await client.end(53)
            try await client.expectEnd(53)
            await client.end(52)
            try await client.expectEnd(52)
            try await server.becomesIdle()
            #expect(server.statistics[.overloadsOfStreams] == 2)
            #expect(server.statistics[.overloads] == 2)
            #expect(server.statistics[.streamsOpened] == 4)
        }
    }

    @Test func aMistakeMakesRoomToo() async throws {
        try await withStreams(.streaming { $0.maximumStreams = 1 }) { client, server in
            for _ in 0..<3 {
                try await client.open(StreamCall.hang)
                await client.end()
                await client.item(50, "late")
                try await client.expectEnd(50, .illegalFormat)
            }
            try await server.becomesIdle()
        }
    }

    @Test func aStreamIsOneRequestInFlight() async throws {
        let notes = StreamNotes()
        let limits = SocketServer.Configuration.limited { $0.maximumInFlightPerConnection = 2 }
        try await withStreams(limits, notes) { client, server in
            try await client.open(StreamCall.read, 50)
            for number in 0..<5 {
                await client.item(50, "\(number)")
                try await notes.expect("item \(number)")
            }
            #expect(server.requestsInFlight == 1)
            try await client.open(StreamCall.read, 51)
            try await client.open(StreamCall.read, 52)
            try await client.expectEnd(52, .overloaded)
            await client.end(50)
            try await client.expectEnd(50)
            try await client.open(StreamCall.read, 52)
            for serial in [51, 52] as [UInt32] {
                await client.end(serial)
                try await client.expectEnd(serial)
            }
            try await server.becomesIdle()
            #expect((server.statistics[.overloads], server.statistics[.overloadsOfStreams]) == (1, 0))
        }
    }

    @Test func theLimitsOfATypeCountStreams() async throws {
        var router = makeStreamRouter()
        router.stream(StreamCall.read, kind: .clientStreaming, limits: RouteLimits(maximumInFlight: 1)) { stream, _ in
            for try await _ in stream.items {}
            return ByteBuffer()
        }
        try await withServer(.init(), router) { server in
            let client = try await StreamClient(server)
            try await client.open(StreamCall.read, 50)
            try await client.open(StreamCall.read, 51)
            try await client.expectEnd(51, .overloaded)
            await client.end(50)
            try await client.expectEnd(50)
            try await client.open(StreamCall.read, 51)
            await client.end(51)
            try await client.expectEnd(51)
            try await server.becomesIdle()
            #expect(server.statistics[.overloadsOfType] == 1)
        }
    }

    @Test func theTimeoutOfATypeCoversItsStreams() async throws {
        var router = makeStreamRouter()
        let notes = StreamNotes()
        router.stream(
            StreamCall.read,
            kind: .bidirectional,
            limits: RouteLimits(timeout: .milliseconds(200))
        ) { stream, _ in
            do throws(StatusError) {
                for try await _ in stream.items {}
            } catch {
                notes.note("failed \(error.status.rawValue)")
            }
            return ByteBuffer()
        }
        try await withServer(.init(), router) { server in
            let client = try await StreamClient(server)
            try await client.open(StreamCall.read)
            try await client.expectEnd(50, .deadlineExceeded)
            try await notes.expect("failed 408")
            try await client.expectService()
            try await server.becomesIdle()
            #expect(server.statistics[.handlerTimeouts] == 1)
        }
    }

    @Test func aStreamThatStallsEndsThoughItHadCredit() async throws {
        let notes = StreamNotes()
        let configuration = SocketServer.Configuration.streaming { $0.idleLimit = .milliseconds(300) }
        try await withStreams(configuration, notes, window: 17) { client, server in
            // One item is sent, and no credit arrives.
            try await client.open(StreamCall.count, 50, "100")
            try await client.expectItem(50, "0")
            try await client.expectEnd(50, .deadlineExceeded)
            try await client.expectService()
            try await server.becomesIdle()
            #expect(server.statistics[.idleStreams] == 1)
        }
    }
}
