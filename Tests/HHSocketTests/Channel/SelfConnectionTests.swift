// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// A client whose socket gets the port of its server, which is down, as its own one.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct SelfConnectionTests {
    /// The system does that by chance; the bootstrap does it by choice.
    private func world(_ port: Int, on eventLoop: any EventLoop) -> DriverWorld {
        DriverWorld(
            thread: LoopThread(of: eventLoop),
            makeBootstrap: {
                guard let address = try? SocketAddress(ipAddress: "127.0.0.1", port: port) else { fatalError() }
                return ClientBootstrap(group: eventLoop)
                    .channelOption(.socketOption(.so_reuseaddr), value: 1)
                    .bind(to: address)
            },
            lookUp: { _, _ in eventLoop.makeSucceededFuture(["127.0.0.1"]) },
            random: { 0 }
        )
    }

    private func freePort() async throws -> Int {
        let channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .bind(host: "127.0.0.1", port: 0).get()
        let port = try #require(channel.localAddress?.port)
        try await channel.close()
        return port
    }

    @Test(arguments: ["127.0.0.1", "localhost"])
    func connectionToItselfIsARefusal(host: String) async throws {
        let port = try await self.freePort()
        let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
        var configuration = SocketConfiguration(servers: [try Endpoint(url: "ws://\(host):\(port)/")])
        configuration.networkMonitor = nil
        configuration.eventLoopGroup = eventLoop
        configuration.backoff = Backoff(maximumRounds: 1)
        let link = WebSocketLink(
            WebSocketLink.Configuration(socket: configuration),
            in: self.world(port, on: eventLoop)
        )
        let events = link.events
        link.connect()
        let event = try await first(of: events, "a failed attempt") { event in
            switch event {
            case .connection(.connectFailed), .connection(.connected), .opened: true
            default: false
            }
        }
        guard case .connection(.connectFailed(let error)) = event else {
            throw Unexpected(description: "\(event)")
        }
        #expect(error.code == .connectionRefused)
        #expect(error.message.contains("the system connected the socket to itself"), "\(error.message)")
        _ = try await first(of: events, "the end of attempts") {
            if case .connection(.gaveUp) = $0 { true } else { false }
        }
    }
}
