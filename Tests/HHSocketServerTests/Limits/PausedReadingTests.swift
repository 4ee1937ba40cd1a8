// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// The time limits for frames that a client has sent while it did not read its answers.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct PausedReadingTests {
    /// The frames waited at the server, not for the client, which was nevertheless disconnected after 30 s for half a
    /// frame.
    @Test func framesThatWaitedForRoomAreNotTakenForHalves() async throws {
        let session = NIOLockedValueBox<ServerSession?>(nil)
        var router = Router()
        router.handleSynchronously(200) { _, context in
            session.withLockedValue { $0 = context.session }
            return ByteBuffer(repeating: 0, count: 64 << 10)
        }
        try await withServer(.init(), router) { server in
            let client = try await HostileClient.connect(to: server.address, reads: false)
            let serials = 50..<450 as Range<UInt32>
            let requests = serials.map { HostileClient.Act.request(200, serial: $0) }
            await client.perform(requests.dropFirst().reduce(requests[0]) { $0.then($1) })
            let state = NIOLockedValueBox((isPaused: false, isWaiting: false))
            @Sendable func look() {
                session.withLockedValue { $0 }?.onLoop { connection, _ in
                    state.withLockedValue {
                        $0 = (connection.link.isPaused, connection.hot.watching.watch.hasPartialFrame)
                    }
                }
            }
            try await eventually("the pause") {
                look()
                return state.withLockedValue { $0.isPaused }
            }
            await client.perform(.startReading)
            _ = try await client.responses(serials.count)
            try await eventually("the end of the wait", within: .seconds(10)) {
                look()
                return state.withLockedValue { !$0.isPaused && !$0.isWaiting }
            }
        }
    }
}
