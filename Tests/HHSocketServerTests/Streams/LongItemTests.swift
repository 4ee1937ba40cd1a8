// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Items that are longer than a frame.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct LongItemTests {
    /// Bytes without repeated parts.
    private static let body = ByteBuffer(bytes: (0..<200_000).map { UInt8(truncatingIfNeeded: $0 &* 31 ^ $0 >> 8) })

    @Test(arguments: [HandlerExecutor.global, .connection])
    func longItemsComeAndGoInPieces(_ executor: HandlerExecutor) async throws {
        try await withStreams(on: executor) { client, server in
            try await client.open(StreamCall.echo)
            for round in 1...3 as ClosedRange<UInt64> {
                var rest = Self.body
                while let piece = rest.readSlice(length: 60_000) {
                    await client.send(FrameType.item | FrameType.continuesFlag, 50, piece)
                    // Calls are answered between the pieces.
                    await client.send(StreamCall.plain, 51)
                }
                await client.send(FrameType.item, 50, rest)
                var (echoed, lengths, calls) = (ByteBuffer(), [Int](), 0)
                while echoed.readableBytes < 200_000 || calls < 3 {
                    let frame = try await client.answer()
                    guard frame.serial == 50 else {
                        calls += 1
                        continue
                    }
                    #expect(frame.status == .partial)
                    echoed.writeImmutableBuffer(frame.payload)
                    lengths.append(frame.payload.readableBytes)
                    let isLast = echoed.readableBytes == 200_000
                    #expect((frame.type & FrameType.continuesFlag != 0) == !isLast)
                    await client.credit(50, (262_144 + 200_064) * round)
                    await client.credit(0, 4_194_304 * round)
                }
                #expect(echoed == Self.body)
                #expect(lengths.allSatisfy { $0 <= 65_536 })
            }
            await client.end()
            try await client.expectEnd()
            try await server.becomesIdle()
        }
    }

    @Test func theAnswerToAClientsStreamIsSentInPieces() async throws {
        try await withStreams { client, server in
            try await client.open(StreamCall.gather)
            await client.item(50, length: 60_000)
            await client.item(50, length: 60_000)
            await client.end()
            var (length, statuses) = (0, Set<Status>())
            while length < 120_002 {
                let frame = try await client.answer(to: 50)
                length += frame.payload.readableBytes
                statuses.insert(frame.status)
                #expect((frame.type & FrameType.continuesFlag != 0) == (length < 120_002))
            }
            #expect((length, statuses) == (120_002, [.ok]))
            try await client.expectService(50)
            try await server.becomesIdle()
        }
    }

    @Test func anItemThatIsTooLongToSendIsTheHandlersError() async throws {
        let notes = StreamNotes()
        var router = makeStreamRouter()
        router.stream(StreamCall.read, kind: .serverStreaming) { stream, _ in
            do {
                try await stream.send(ByteBuffer(repeating: 120, count: 1_001))
            } catch let error as StatusError {
                notes.note("refused \(error.status.rawValue)")
            }
            try await stream.send(ByteBuffer(repeating: 120, count: 1_000))
            return ByteBuffer()
        }
        try await withServer(.limited { $0.maximumAnswerLength = 1_000 }, router) { server in
            let client = try await StreamClient(server)
            try await client.open(StreamCall.read)
            #expect(try await client.answer().payload.readableBytes == 1_000)
            try await client.expectEnd()
            #expect(notes.lines.current == ["refused 301"])
        }
    }

    /// A partly received payload that makes no progress.
    @Test(arguments: [FrameType.item, StreamCall.plain])
    func anUnfinishedPayloadThatDoesNotGetOnIsAStall(_ type: UInt32) async throws {
        let limits = SocketServer.Configuration.limited { $0.readStallTimeout = .milliseconds(300) }
        let notes = StreamNotes()
        try await withStreams(limits, notes) { client, server in
            if type == FrameType.item {
                try await client.open(StreamCall.hang)
                try await notes.expect("hangs 50")
            }
            await client.piece(type, length: 10)
            try await client.expectGoAway()
            try await client.client.ended()
            try await server.becomesIdle()
            #expect(server.statistics[.readStalls] == 1)
        }
    }
}
