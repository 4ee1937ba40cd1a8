// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// The fast path of answers, which the ends of streams and last pieces must not take: each looks like the whole answer
/// of a call.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StreamFastPathTests {
    private typealias Peer = StreamPeer

    @Test func anEndInOneReadWithItsItemsComesAfterThem() async throws {
        let peer = try await Peer()
        peer.server.on(Peer.type, .glued(.item("x").times(100), .status(.ok)))
        for _ in 0..<20 {
            let stream = try await peer.client.stream(for: SocketRequest(type: Peer.type), kind: .serverStreaming)
            #expect(try await stream.allTexts().texts.count == 100)
        }
    }

    @Test func anEndThatComesAloneMakesRoomForTheNextStream() async throws {
        let peer = try await Peer(maximumStreams: 1)
        peer.server.on(Peer.type, .status(.ok))
        for _ in 0..<5 {
            let stream = try await withDeadline("the opening") {
                try await peer.client.stream(for: SocketRequest(type: Peer.type), kind: .serverStreaming)
            }
            _ = try await stream.response
        }
    }

    @Test func aLastPieceThatComesAloneIsNotTheAnswer() async throws {
        let peer = try await Peer()
        let call = Task { try await peer.client.data(for: SocketRequest(type: 102)) }
        let serial = try await peer.server.received(1, ofType: 102)[0].serial
        let connection = try await peer.server.connection(0)
        await connection.perform(.answer("one ").unfinished().withSerial(serial))
        try await peer.fence()
        await connection.perform(.answer("two").withSerial(serial))
        #expect(try await call.value.string == "one two")
    }
}
