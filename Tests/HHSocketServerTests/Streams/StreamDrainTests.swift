// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Streams of a server that shuts down.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StreamDrainTests {
    @Test func newStreamsAreAnswered504AndOpenOnesRunOn() async throws {
        try await withStreams { client, server in
            try await client.open(StreamCall.echo, 50)
            await client.item(50, "before")
            try await client.expectItem(50, "before")
            async let shutdown: Void = server.shutdown(gracePeriod: patience)
            try await client.expectGoAway()
            try await client.open(StreamCall.echo, 51)
            try await client.expectEnd(51, .draining)
            await client.item(50, "after")
            try await client.expectItem(50, "after")
            await client.end(50)
            try await client.expectEnd(50)
            await client.client.perform(.close)
            await shutdown
            #expect(server.statistics[.refusedWhileDraining] == 1)
            #expect(server.requestsInFlight == 0)
        }
    }

    @Test(arguments: [HandlerExecutor.global, .connection])
    func streamsOpenAfterTheGracePeriodAreAnswered409(_ executor: HandlerExecutor) async throws {
        let notes = StreamNotes()
        try await withStreams(.init(), notes, window: 17, on: executor) { client, server in
            try await client.open(StreamCall.hang, 50)
            try await client.open(StreamCall.read, 51)
            // Its second item waits for credit, and is dropped.
            try await client.open(StreamCall.count, 52, "100")
            try await client.expectItem(52, "0")
            try await notes.expect("hangs 50")
            try await notes.expect("reads 51")
            async let shutdown: Void = server.shutdown(gracePeriod: patience)
            try await client.expectGoAway()
            await server.shutdown(gracePeriod: .zero)
            await shutdown
            for serial in 50...52 as ClosedRange<UInt32> { try await client.expectEnd(serial, .cancelledByServer) }
            try await client.client.ended()
            try await notes.expect("cancelled 50")
            try await notes.expect("failed 51 409")
        }
    }

    @Test func aClientThatReadsNothingHoldsNoShutdownUp() async throws {
        let notes = StreamNotes()
        var configuration = SocketServer.Configuration.limited { $0.kernelSendBuffer = 16 << 10 }
        configuration.streams = StreamPolicy(maximumStreams: 100)
        try await withStreams(configuration, notes) { client, server in
            await client.client.perform(.stopReading)
            await client.credit(0, .max)
            for serial in 50..<60 as Range<UInt32> {
                try await client.open(StreamCall.flood, serial, String(repeating: "x", count: 10_000))
                await client.credit(serial, .max)
            }
            try await eventually("more waits than the system takes") { server.bufferedBytes > 100_000 }
            await server.shutdown(gracePeriod: .zero)
            // Some of them may not be open: the server reads no more while many bytes wait.
            try await notes.lines.wait("the end of all handlers") { lines in
                let begun = lines.filter { $0.hasPrefix("floods") }.count
                return begun > 0 && begun == lines.filter { $0.hasPrefix("stopped") }.count
            }
            #expect(server.connectionCount == 0)
        }
    }
}
