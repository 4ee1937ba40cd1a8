// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Payloads in pieces that fail before they are complete. Their other pieces are ignored, and the connection continues.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct FailedPiecesTests {
    private static let limits = SocketServer.Configuration.limited { $0.maximumPayloadLength = 100_000 }

    @Test func aRequestOverThePayloadLimitIsAnswered301() async throws {
        try await withStreams(Self.limits) { client, server in
            for _ in 0..<2 { await client.piece(StreamCall.plain, length: 65_536) }
            try await client.expectEnd(50, .illegalLength)
            // The other pieces are ignored.
            await client.piece(StreamCall.plain, length: 65_536)
            try await client.expectService()
            await client.send(StreamCall.plain, 50, ByteBuffer(string: "the last piece"))
            try await client.expectService(50)
            try await server.becomesIdle()
            #expect(server.statistics[.illegalRequests] == 1)
        }
    }

    @Test func anItemOverThePayloadLimitIsAnswered301() async throws {
        let notes = StreamNotes()
        try await withStreams(Self.limits, notes) { client, server in
            try await client.open(StreamCall.read)
            for _ in 0..<2 { await client.piece(FrameType.item, length: 65_536) }
            try await client.expectEnd(50, .illegalLength)
            try await notes.expect("failed 50 301")
            await client.piece(FrameType.item, length: 65_536)
            await client.item(50, "the last piece")
            await client.end()
            try await client.expectService(50)
            try await server.becomesIdle()
            #expect(server.statistics[.illegalRequests] == 1)
        }
    }

    @Test func aDamagedPieceIsAnswered302() async throws {
        try await withStreams { client, server in
            await client.piece(StreamCall.plain, length: 10)
            await client.client.perform(
                .request(StreamCall.plain | FrameType.continuesFlag, serial: 50, "damaged").corrupted()
            )
            try await client.expectEnd(50, .lostPacket)
            await client.piece(StreamCall.plain, length: 10)
            await client.send(StreamCall.plain, 50, ByteBuffer(string: "the last piece"))
            try await client.expectService(50)
            try await server.becomesIdle()
            #expect(server.statistics[.badChecksums] == 1)
        }
    }

    @Test func aPieceOfAnotherTypeIsAnswered303() async throws {
        try await withStreams { client, server in
            await client.piece(StreamCall.plain, length: 10)
            await client.piece(StreamCall.large, length: 10)
            try await client.expectEnd(50, .illegalFormat)
            await client.send(StreamCall.plain, 50, ByteBuffer(string: "the last piece"))
            try await client.expectService(50)
            try await server.becomesIdle()
        }
    }

    @Test func moreUnfinishedRequestsThanMayBeHeldAreAnswered503() async throws {
        let configuration = SocketServer.Configuration.streaming { $0.maximumHeldBytes = 100_000 }
        try await withStreams(configuration) { client, server in
            await client.piece(StreamCall.plain, 50, length: 65_000)
            await client.piece(StreamCall.plain, 51, length: 65_000)
            try await client.expectEnd(51, .overloaded)
            await client.send(StreamCall.plain, 51, ByteBuffer(string: "the last piece"))
            await client.send(StreamCall.plain, 50)
            #expect(try await client.answer().payload.readableBytes == 65_000)
            try await server.becomesIdle()
            #expect(server.statistics[.overloadsOfMemory] == 1)
        }
    }

    @Test func aCancelEndsWhatHasComeOrIsSwallowed() async throws {
        try await withStreams(Self.limits) { client, server in
            await client.piece(StreamCall.plain, length: 65_536)
            await client.client.perform(.cancel(50))
            try await client.expectService(50)
            for _ in 0..<2 { await client.piece(StreamCall.plain, length: 65_536) }
            try await client.expectEnd(50, .illegalLength)
            await client.client.perform(.cancel(50))
            try await client.expectService(50)
            try await server.becomesIdle()
        }
    }

    @Test func aStreamOpensByAnOpeningInPieces() async throws {
        try await withStreams { client, server in
            await client.send(StreamCall.count | FrameType.continuesFlag, 50, ByteBuffer(string: "1"))
            await client.send(StreamCall.count, 50, ByteBuffer(string: "2"))
            for number in 0..<12 { try await client.expectItem(50, "\(number)") }
            try await client.expectTrailers(50)
            try await server.becomesIdle()
        }
    }
}
