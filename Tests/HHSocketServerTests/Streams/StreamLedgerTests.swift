// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// The bytes that streams hold are charged, bounded, and released.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StreamLedgerTests {
    /// The ways in which a stream that holds items ends.
    enum Way: CaseIterable {
        case cancel, reset, mistake, answer
    }

    @Test(arguments: Way.allCases)
    func untakenItemsAreChargedUntilTheEnd(_ way: Way) async throws {
        let notes = StreamNotes()
        try await withStreams(.init(), notes) { client, server in
            try await client.open(StreamCall.hang, 50)
            try await notes.expect("hangs 50")
            for _ in 0..<4 { await client.item(50, length: 50_000) }
            await client.piece(FrameType.item, 50, length: 50_000)
            try await eventually("they are charged") { server.bufferedBytes >= 250_000 }
            switch way {
            case .cancel: await client.client.perform(.cancel(50))
            case .reset: await client.client.perform(.reset)
            case .mistake:
                await client.end()
                try await client.expectEnd(50, .illegalFormat)
            case .answer:
                notes.gate.open()
                try await client.expectEnd(50)
            }
            try await server.becomesIdle()
        }
    }

    @Test func unfinishedRequestsAreChargedUntilTheyAreCancelled() async throws {
        try await withStreams { client, server in
            for serial in 50..<54 as Range<UInt32> {
                await client.piece(StreamCall.plain, serial, length: 65_000)
            }
            try await eventually("they are charged") { server.bufferedBytes >= 260_000 }
            for serial in 50..<54 as Range<UInt32> { await client.client.perform(.cancel(serial)) }
            try await server.becomesIdle()
        }
    }

    @Test func itemsWaitingForCreditAreCharged() async throws {
        try await withStreams(window: 1) { client, server in
            try await client.open(StreamCall.flood, 50, String(repeating: "x", count: 60_000))
            // The request, and the item.
            try await eventually("it is charged") { server.bufferedBytes >= 120_000 }
            await client.client.perform(.cancel(50))
            try await server.becomesIdle()
        }
    }

    @Test func aClientThatGrantsAllAndReadsNothingStopsItsHandlers() async throws {
        let (streams, items, length) = (32, 32, 60_000)
        let (peak, running) = (Watched(0), Watched<SocketServer?>(nil))
        var router = makeStreamRouter()
        router.stream(StreamCall.flood, kind: .serverStreaming) { stream, _ in
            for _ in 0..<items {
                try await stream.send(ByteBuffer(repeating: 120, count: length))
                let held = running.current?.bufferedBytes ?? 0
                peak.withLockedValue { $0 = max($0, held) }
            }
            return ByteBuffer()
        }
        try await withServer(.init(), router) { server in
            running.withLockedValue { $0 = server }
            defer { running.withLockedValue { $0 = nil } }
            let client = try await StreamClient(server)
            await client.client.perform(.stopReading)
            await client.credit(0, .max)
            for serial in 50..<UInt32(50 + streams) {
                try await client.open(StreamCall.flood, serial)
                await client.credit(serial, .max)
            }
            try await eventually("more waits than the system takes") { server.bufferedBytes > 1 << 20 }
            await client.client.perform(.startReading)
            var (ends, bytes) = (0, 0)
            while ends < streams {
                let frame = try await client.answer()
                bytes += frame.payload.readableBytes
                if frame.status != .partial {
                    ends += 1
                    #expect(frame.status == .ok)
                }
            }
            #expect(bytes == streams * items * length)
            // The queue, an item of each stream, and the bytes in transit: at most a third of the limit.
            #expect(peak.current < 20 << 20)
            try await server.becomesIdle()
            #expect(server.statistics[.memoryEvictions] == 0)
        }
    }
}
