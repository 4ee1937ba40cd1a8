// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Frames of streams that are late, duplicate or for no stream, and have no effect.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct IgnoredStreamFrameTests {
    @Test func endsOfNothingAreIgnored() async throws {
        try await withStreams { client, server in
            await client.end(50)
            try await client.open(StreamCall.gather)
            await client.end(51)
            await client.item(50, "x")
            await client.client.perform(.request(FrameType.end, serial: 50).corrupted())
            await client.end()
            await client.end()
            try await client.expectEnd(50, .ok, "x;")
            await client.end()
            try await client.expectService()
            try await server.becomesIdle()
            #expect(server.statistics[.illegalRequests] == 0)
        }
    }

    @Test func invalidCreditsAreIgnored() async throws {
        try await withStreams(window: 34) { client, server in
            // Credit for a stream that is not open.
            await client.credit(50, 1_000)
            try await client.open(StreamCall.count, 50, "10")
            for number in 0..<2 { try await client.expectItem(50, "\(number)") }
            // Credit of another length than 8 bytes.
            for length in [0, 4, 7, 9] {
                await client.send(FrameType.credit, 50, ByteBuffer(repeating: 255, count: length))
            }
            // Credit that is smaller than before, equal, and damaged.
            for credit in [0, 33, 34] as [UInt64] { await client.credit(50, credit) }
            await client.client.perform(
                .request(FrameType.credit, serial: 50, ByteBuffer(integer: UInt64(1_000))).corrupted()
            )
            try await client.expectService()
            await client.credit(50, 51)
            try await client.expectItem(50, "2")
            try await client.expectService()
            // The greatest credit is enough.
            await client.credit(50, .max)
            await client.credit(50, .max)
            for number in 3..<10 { try await client.expectItem(50, "\(number)") }
            try await client.expectTrailers(50)
            await client.credit(50, .max)
            try await client.expectService()
            try await server.becomesIdle()
        }
    }

    @Test func theLargestCreditOfAConnectionIsMoreThanEnough() async throws {
        try await withStreams(connectionWindow: 17) { client, server in
            try await client.open(StreamCall.count, 50, "10")
            try await client.expectItem(50, "0")
            await client.credit(0, 0)
            try await client.expectService()
            await client.credit(0, .max)
            await client.credit(0, .max)
            for number in 1..<10 { try await client.expectItem(50, "\(number)") }
            try await client.expectTrailers(50)
            try await server.becomesIdle()
        }
    }

    @Test func itemsAndCancelsOfUnknownStreamsAreIgnored() async throws {
        try await withStreams { client, server in
            await client.item(50, "nobody's")
            await client.piece(FrameType.item, 50, length: 10)
            await client.client.perform(.cancel(50))
            try await client.open(StreamCall.gather)
            await client.item(50, "x")
            await client.client.perform(.cancel(51))
            await client.end()
            try await client.expectEnd(50, .ok, "x;")
            await client.client.perform(.cancel(50))
            try await client.expectService()
            try await server.becomesIdle()
        }
    }
}
