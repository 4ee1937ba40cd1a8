// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Messages that wait for another turn of their event loop, beyond the rules for any peer's units (`PeerRuleTests`).
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct WebSocketTurnTests {
    @Test func messagesThatWaitForATurnAreHandledThoughTheClientHasSentItsLast() async throws {
        let configuration = SocketServer.Configuration(listeners: [try ServerListener(url: "ws://127.0.0.1:0/rpc")])
        let handled = Watched(0)
        try await withServer(configuration, Router()) { server in
            try server.webSocket("/messages") { _, _ in
                let end = ContinuousClock.now + .milliseconds(1)
                while ContinuousClock.now < end {}
                handled.increment()
            }
        } _: { server in
            let port = try #require(server.address?.port)
            let client = try await HostileClient(to: try Endpoint(url: "ws://127.0.0.1:\(port)/messages"))
            let frames = Array(repeating: WebSocketFrame.binary([]), count: 500)
            await client.perform(.webSocketFrames(frames + [.close(code: 1_000)]))
            #expect(try await client.message().closeCode == 1_000)
            #expect(handled.current == 500)
        }
    }
}
