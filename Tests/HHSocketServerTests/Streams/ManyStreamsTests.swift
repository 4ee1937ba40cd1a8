// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Many streams on one connection.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ManyStreamsTests {
    @Test func oneUnreadStreamStopsNoneOfAThousand() async throws {
        let count = 1_000
        var configuration = SocketServer.Configuration.streaming { $0.maximumStreams = count }
        configuration.limits.maximumInFlightPerConnection = 2 * count
        let notes = StreamNotes()
        try await withServer(configuration, makeStreamRouter(notes)) { server in
            let address = try #require(server.address)
            let client = SocketClient.connecting(to: address) { $0.streams = StreamPolicy(maximumStreams: count) }
            // Neither side reads this stream, so that both windows fill.
            let flood = try await client.stream(
                for: SocketRequest(type: StreamCall.flood, body: String(repeating: "x", count: 10_000)),
                kind: .serverStreaming
            )
            try await withThrowingTaskGroup(of: Void.self) { group in
                let (open, start) = (Watched(0), Gate())
                for number in 1..<count {
                    group.addTask {
                        let stream = try await client.stream(for: SocketRequest(type: StreamCall.echo))
                        open.increment()
                        try await start.wait()
                        for item in 0..<3 { try await stream.send(ByteBuffer(string: "\(number) \(item)")) }
                        stream.finish()
                        var item = 0
                        for try await echoed in stream.items {
                            #expect(String(buffer: echoed) == "\(number) \(item)")
                            item += 1
                        }
                        #expect(item == 3)
                    }
                }
                try await open.wait("all streams") { $0 == count - 1 }
                try await eventually("all are open at a time") { server.requestsInFlight == count }
                start.open()
                let answer = try await client.data(for: SocketRequest(type: StreamCall.plain, body: "small"))
                #expect(answer.string == "small")
                try await group.waitForAll()
            }
            // The stream has not ended.
            #expect(flood.metrics == nil)
            #expect(notes.lines.current == ["floods 50"])
            flood.cancel()
            try await notes.lines.wait("its handler has stopped") { $0.last == "stopped 50" }
            try await server.becomesIdle()
            #expect(server.statistics[.streamsOpened] == count)
        }
    }
}
