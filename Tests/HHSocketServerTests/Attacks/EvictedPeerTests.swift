// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// A connection of frames that is closed to free memory frees it at once, wherever it is held: the client has some time
/// to read the reason, and need not close its side.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct EvictedPeerTests {
    enum Situation: CaseIterable {
        case halfFrames, pieces, items, unfinishedItems
        /// Answers that wait for an earlier one.
        case answersInOrder

        var acts: [HostileClient.Act] {
            let serials = 1_000..<1_004 as Range<UInt32>
            let bytes = ByteBuffer(repeating: 0x30, count: 50_000)
            let streams: [HostileClient.Act] = serials.map { .request(EvictedPeerTests.stream, serial: $0) }
            return switch self {
            case .halfFrames:
                [
                    .request(EvictedPeerTests.echo, serial: 50, ByteBuffer(repeating: 0x30, count: 900_000))
                        .cut(after: 200_000)
                ]
            case .pieces:
                serials.map { .request(EvictedPeerTests.echo | FrameType.continuesFlag, serial: $0, bytes) }
            case .items: streams + serials.map { .request(FrameType.item, serial: $0, bytes) }
            case .unfinishedItems:
                streams + serials.map { .request(FrameType.item | FrameType.continuesFlag, serial: $0, bytes) }
            case .answersInOrder:
                [.request(EvictedPeerTests.hang, serial: 999)]
                    + serials.map { .request(EvictedPeerTests.echo, serial: $0, bytes) }
            }
        }
    }

    private static let echo: UInt32 = 101
    private static let hang: UInt32 = 102
    private static let stream: UInt32 = 103

    private static let router: Router = {
        var router = Router()
        router.handleSynchronously(Self.echo) { request, _ in request.body }
        router.handleUntilCancelled(Self.hang)
        router.streamUntilCancelled(Self.stream)
        return router
    }()

    @Test(arguments: Situation.allCases) func evictedPeerHoldsNothing(situation: Situation) async throws {
        let maximum = 16 << 20
        var configuration = SocketServer.Configuration()
        configuration.answersInOrder = situation == .answersInOrder
        configuration.limits.maximumBufferedBytes = maximum
        // No time passes after which the connection ends.
        configuration.time = SocketTime(ManualTime())
        try await withServer(configuration, Self.router) { server in
            let ledger = try #require(server.parts?.books.ledger)
            let client = try await HostileClient(to: try #require(server.address))
            await client.perform(.hello(.streams, .metadata))
            _ = try await client.response()
            await client.perform(.glued(situation.acts))
            try await eventually("what is held") { server.bufferedBytes >= 190_000 }
            let others = maximum * 15 / 16
            ledger.add(others, shard: 0)
            // Smaller changes of a connection are not passed on.
            try await eventually("nothing is held") { server.bufferedBytes - others < 4 << 10 }
            #expect(server.connectionCount == 1)
            ledger.add(-others, shard: 0)
        }
    }
}
