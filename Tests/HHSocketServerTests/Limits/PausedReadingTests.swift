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
        let time = ManualTime()
        var configuration = SocketServer.Configuration()
        configuration.time = SocketTime(time)
        try await withServer(configuration, router) { server in
            let client = try await HostileClient.connect(to: server.address, reads: false)
            let serials = 50..<450 as Range<UInt32>
            let requests = serials.map { HostileClient.Act.request(200, serial: $0) }
            await client.perform(requests.dropFirst().reduce(requests[0]) { $0.then($1) })
            let isPaused = NIOLockedValueBox(false)
            try await eventually("the pause") {
                session.withLockedValue { $0 }?.port.onLoop { peer, _ in
                    let isHeld = (peer as? ServerPeer)?.isReadingHeld
                    isPaused.withLockedValue { $0 = isHeld ?? false }
                }
                return isPaused.withLockedValue { $0 }
            }
            // Its state is looked at meanwhile.
            await time.advance(by: .seconds(3))
            await client.perform(.startReading)
            _ = try await client.responses(serials.count)
            await time.advance(by: .seconds(100))
            #expect(server.statistics[.readStalls] == 0)
            await client.perform(.ping())
            _ = try await client.response()
        }
    }
}
