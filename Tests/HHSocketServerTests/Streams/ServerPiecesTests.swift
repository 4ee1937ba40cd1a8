// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Payloads in pieces that belong to no stream.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ServerPiecesTests {
    @Test func longAnswersAreSentInPiecesAndShortOnesPassBetween() async throws {
        try await withStreams { client, server in
            await client.client.perform(.stopReading)
            await client.client.perform(
                .request(StreamCall.large, serial: 50, "8000000").then(.request(StreamCall.plain, serial: 51, "short"))
            )
            await client.client.perform(.startReading)
            var (length, frames, position) = (0, 0, 0)
            while length < 8_000_000 {
                let frame = try await client.answer()
                guard frame.serial == 50 else {
                    #expect(String(buffer: frame.payload) == "short")
                    position = frames
                    continue
                }
                frames += 1
                length += frame.payload.readableBytes
                #expect(frame.payload.readableBytes <= 65_536)
                #expect((frame.type & FrameType.continuesFlag != 0) == (length < 8_000_000))
            }
            #expect(frames == 123)
            #expect(position > 0 && position < 100)
            try await server.becomesIdle()
        }
    }

    @Test func requestsComeInPieces() async throws {
        try await withStreams { client, server in
            let pieces = ["one ", "two ", "", "three"]
            for (index, piece) in pieces.enumerated() {
                let isLast = index == pieces.count - 1
                await client.send(
                    isLast ? StreamCall.plain : StreamCall.plain | FrameType.continuesFlag,
                    50,
                    ByteBuffer(string: piece)
                )
                // Complete payloads are handled between the pieces.
                await client.send(StreamCall.plain, 51, ByteBuffer(string: "short"))
                let answer = try await client.answer()
                if isLast, answer.serial == 50 {
                    #expect(String(buffer: answer.payload) == "one two three")
                    #expect(try await client.answer().serial == 51)
                } else {
                    #expect(String(buffer: answer.payload) == "short")
                }
            }
            try await server.becomesIdle()
        }
    }

    @Test func pushesAreSentInPiecesAndInOrder() async throws {
        try await withStreams { client, server in
            _ = await server.push(type: 300, body: ByteBuffer(repeating: 1, count: 200_000))
            _ = await server.push(type: 300, body: ByteBuffer(repeating: 2, count: 10))
            var lengths: [Int] = []
            for _ in 0..<5 {
                let frame = try await client.answer()
                #expect(frame.serial == FrameSerial.push)
                lengths.append(frame.payload.readableBytes)
            }
            #expect(lengths == [65_536, 65_536, 65_536, 3_392, 10])
            try await server.becomesIdle()
        }
    }
}
