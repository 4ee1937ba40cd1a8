// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// The observable traffic of a stream.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StreamTrafficTests {
    private func traffic(_ stream: SocketStream, _ client: SocketClient) async -> StreamTraffic? {
        await withCheckedContinuation { continuation in
            let (host, call) = (client.host, stream.call)
            _ = host.loop.submit(
                .closure { _ in
                    let connection = call.flight.connection
                    let traffic = host.streams.traffic(of: call, on: connection, asksSystem: true)
                    continuation.resume(returning: traffic)
                }
            )
        }
    }

    @Test func sentAndAcknowledgedBytesAreCounted() async throws {
        let peer = try await StreamPeer()
        let (stream, _) = try await peer.open()
        let before = try #require(await self.traffic(stream, peer.client))
        #expect(before.sent == 0 && before.received == 0)
        try await stream.send(ByteBuffer(repeating: 7, count: 100_000))
        try await eventually("it has left") { await self.traffic(stream, peer.client)?.sent ?? 0 >= 100_000 }
        #if os(Linux)
        let first = try #require(before.acknowledgedOnConnection)
        try await eventually("it is acknowledged") {
            await self.traffic(stream, peer.client)?.acknowledgedOnConnection ?? 0 >= first + 100_000
        }
        #endif
    }

    @Test func aFrameThatIsNotWholeCounts() async throws {
        let peer = try await StreamPeer()
        let (stream, serial) = try await peer.open()
        try await peer.server.connection(0).perform(
            .frame(StreamPeer.item(serial, length: 60_000)).cut(after: 30_000)
        )
        let received = try await eventually("half of it") {
            let received = await self.traffic(stream, peer.client)?.received ?? 0
            return received >= 29_000 ? received : nil
        }
        #expect(received <= 30_000)
    }

    @Test func aStreamThatIsOverHasNone() async throws {
        let peer = try await StreamPeer()
        let (stream, serial) = try await peer.open()
        try await peer.send(StreamPeer.end(serial))
        _ = try await stream.response
        #expect(await self.traffic(stream, peer.client) == nil)
    }
}
