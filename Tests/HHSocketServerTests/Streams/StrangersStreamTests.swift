// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketMessage
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

private let signIn: UInt32 = 220
private let signOut: UInt32 = 221

/// The limits of streams of clients without an identity.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StrangersStreamTests {
    private static func withStranger(
        _ notes: StreamNotes = StreamNotes(),
        token: String = "",
        _ body: (StreamClient, SocketServer) async throws -> Void
    ) async throws {
        let open = Set((200...221) as ClosedRange<UInt32>)
        var router = makeStreamRouter(notes, layer: AuthenticationMiddleware(except: open))
        router.handleSynchronously(signIn) { _, context in
            context.session.authenticate(as: "ann")
            return ByteBuffer()
        }
        router.handleSynchronously(signOut) { _, context in
            context.session.authenticate(as: nil)
            return ByteBuffer()
        }
        var configuration = SocketServer.Configuration()
        configuration.hello.authenticate = { token, _ in token.isEmpty ? nil : String(decoding: token, as: UTF8.self) }
        try await withServer(configuration, router) { server in
            let features = ["metadata", "streams", "compression"]
            try await body(try await StreamClient(server, features: features, token: token), server)
        }
    }

    @Test func aStrangerHasFewStreams() async throws {
        try await Self.withStranger { client, server in
            for serial in 50..<54 as Range<UInt32> { try await client.open(StreamCall.gather, serial) }
            try await client.open(StreamCall.gather, 54)
            try await client.expectEnd(54, .overloaded)
            await client.end(50)
            try await client.expectEnd(50)
            try await client.open(StreamCall.gather, 54)
            await client.end(54)
            try await client.expectEnd(54)
        }
    }

    @Test func aStrangersPayloadsAreShort() async throws {
        try await Self.withStranger { client, server in
            for _ in 0..<2 { await client.piece(StreamCall.plain, 50, length: 65_536) }
            await client.piece(StreamCall.plain, 50, length: 1)
            try await client.expectEnd(50, .illegalLength)
            // Its place is held until the last piece.
            await client.send(StreamCall.plain, 50, ByteBuffer(string: "x"))
            try await client.open(StreamCall.gather, 51)
            for _ in 0..<2 { await client.piece(FrameType.item, 51, length: 65_536) }
            await client.item(51, "x")
            try await client.expectEnd(51, .illegalLength)
            // A client with an identity may send more.
            await client.send(signIn, 52)
            try await client.expectEnd(52)
            for _ in 0..<2 { await client.piece(StreamCall.plain, 53, length: 65_536) }
            await client.send(StreamCall.plain, 53, ByteBuffer(string: "x"))
            var length = 0
            while length < 131_073 { length += try await client.answer(to: 53).payload.readableBytes }
            try await server.becomesIdle()
        }
    }

    @Test func aStrangerHoldsLittle() async throws {
        try await Self.withStranger { client, server in
            // 4 times 128 KiB in all, including the cost of each payload beside its bytes.
            for serial in 50..<57 as Range<UInt32> { await client.piece(StreamCall.plain, serial, length: 65_536) }
            await client.piece(StreamCall.plain, 57, length: 65_536)
            try await client.expectEnd(57, .overloaded)
            #expect(server.bufferedBytes < 1 << 20)
        }
    }

    @Test func itemsOfAStrangerAreNotDecompressed() async throws {
        try await Self.withStranger { client, _ in
            #expect(client.reply.features == ["metadata", "streams"])
        }
        let notes = StreamNotes()
        try await Self.withStranger(notes, token: "ann") { client, server in
            #expect(client.reply.features.contains("compression"))
            let item = try #require(Envelope.deflate(ByteBuffer(repeating: 120, count: 5_000), level: 1))
            for serial in [50, 51] as [UInt32] { try await client.open(StreamCall.read, serial) }
            await client.send(FrameType.item | FrameType.compressionFlag, 50, item)
            await client.end(50)
            try await client.expectEnd(50)
            // It has signed out, and is a stranger from now on.
            await client.send(signOut, 52)
            try await client.expectEnd(52)
            await client.send(FrameType.item | FrameType.compressionFlag, 51, item)
            try await client.expectEnd(51, .illegalFormat)
            try await notes.expect("failed 51 303")
            try await client.expectService()
            try await server.becomesIdle()
        }
    }
}
