// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// A client that sends nothing more, and still reads.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct HalfClosedStreamTests {
    @Test func aHalfClosedClientGetsWhatItHasAskedFor() async throws {
        try await withStreams { client, server in
            try await client.open(StreamCall.count, 50, "3")
            try await client.open(StreamCall.echo, 51)
            await client.item(51, "x")
            await client.end(51)
            await client.client.perform(.halfClose)
            var frames: [Frame] = []
            while let frame = try? await client.answer() { frames.append(frame) }
            #expect(frames.filter { $0.serial == 50 }.map(\.status) == [.partial, .partial, .partial, .ok])
            #expect(frames.filter { $0.serial == 51 }.map(\.status) == [.partial, .ok])
            try await client.client.ended()
            try await server.becomesIdle()
        }
    }

    @Test func aHalfClosedClientsUnfinishedStreamsAreCancelled() async throws {
        let notes = StreamNotes()
        try await withStreams(.init(), notes) { client, server in
            try await client.open(StreamCall.hang, 50)
            try await client.open(StreamCall.gather, 51)
            await client.item(51, "x")
            try await notes.expect("hangs 50")
            await client.client.perform(.halfClose)
            try await client.client.ended()
            try await notes.expect("cancelled 50")
            try await server.becomesIdle()
        }
    }

    @Test func aHalfClosedClientGetsNoMoreThanItsCredit() async throws {
        try await withStreams(window: 170) { client, server in
            try await client.open(StreamCall.count, 50, "100")
            await client.client.perform(.halfClose)
            var frames: [Frame] = []
            while let frame = try? await client.answer() { frames.append(frame) }
            #expect(frames.map { String(buffer: $0.payload) } == (0..<10).map { "\($0)" })
            try await client.client.ended()
            try await server.becomesIdle()
        }
    }
}
