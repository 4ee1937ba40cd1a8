// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// The authentication of clients that open a WebSocket for messages.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct WebSocketAuthenticationTests {
    private let here: [IPNetwork]

    init() throws {
        self.here = [try IPNetwork("127.0.0.0/8")]
    }

    private func with(
        _ options: WebSocketRouteOptions,
        change: (inout SocketServer.Configuration) -> Void = { _ in },
        handler: @escaping @Sendable (WebSocketConnection) async throws -> Void = { connection in
            for await message in connection.messages { connection.post(message) }
        },
        _ body: (Endpoint, SocketServer) async throws -> Void
    ) async throws {
        var configuration = SocketServer.Configuration(listeners: [try ServerListener(url: "ws://127.0.0.1:0/rpc")])
        change(&configuration)
        try await withServer(configuration, Router()) { server in
            try server.webSocket("/messages", options: options, handler)
        } _: { server in
            let port = try #require(server.address?.port)
            try await body(try Endpoint(url: "ws://127.0.0.1:\(port)/messages"), server)
        }
    }

    /// Begins to open a WebSocket, like an HTTP proxy for its client.
    private func begin(_ endpoint: Endpoint, for address: String) async throws -> HostileClient {
        let client = try await HostileClient(to: endpoint, opensWebSocket: false)
        await client.perform(.opening(headers: ["X-Forwarded-For": address]))
        return client
    }

    @Test func clientsBehindOneProxyAlternateByTheirOwnAddresses() async throws {
        let release = Gate()
        var options = WebSocketRouteOptions()
        options.authenticate = { _ in
            try? await release.wait()
            return .allow()
        }
        try await self.with(
            options,
            change: { configuration in
                configuration.listeners[0].proxies.forwardedFor = self.here
                configuration.hello.maximumConcurrentAuthentications = 1
                configuration.hello.maximumWaitingAuthentications = 2
            }
        ) { endpoint, server in
            var greedy: [HostileClient] = []
            for number in 1...3 {
                greedy.append(try await self.begin(endpoint, for: "192.0.2.1"))
                try await eventually("client \(number)") {
                    server.authentications.running + server.authentications.waiting == number
                }
            }
            // The line is full: the client whose address has most makes room.
            let other = try await self.begin(endpoint, for: "192.0.2.2")
            #expect(try await greedy[2].opening().status == 503)
            release.open()
            #expect(try await other.opening().status == 101)
            #expect(try await greedy[0].opening().status == 101)
            #expect(try await greedy[1].opening().status == 101)
        }
    }

    @Test func clientThatIsSentAwayInAnyCaseIsNotAuthenticated() async throws {
        let asked = Watched(0)
        var options = WebSocketRouteOptions()
        options.authenticate = { _ in
            asked.increment()
            return .allow()
        }
        try await self.with(options, change: { $0.limits.maximumConnectionsPerAddress = 1 }) { endpoint, _ in
            let first = try await HostileClient(to: endpoint)
            let second = try await HostileClient(to: endpoint, opensWebSocket: false)
            await second.perform(.opening())
            #expect(try await second.opening().status == 503)
            #expect(asked.current == 1)
            await first.perform(.text("still there"))
            #expect(try await first.message().text == "still there")
        }
    }

    @Test func clientBehindAProxyCountsForItsAddressWhateverItAsksFor() async throws {
        try await self.with(
            WebSocketRouteOptions(),
            change: { configuration in
                configuration.listeners[0].proxies.forwardedFor = self.here
                configuration.limits.connectionRatePerAddress = RequestRate(perSecond: 0.001, burst: 3)
            }
        ) { endpoint, _ in
            for _ in 1...3 {
                let client = try await HostileClient(to: endpoint, opensWebSocket: false)
                await client.perform(.opening("/nothing", headers: ["X-Forwarded-For": "192.0.2.1"]))
                #expect(try await client.opening().status == 404)
            }
            let late = try await self.begin(endpoint, for: "192.0.2.1")
            #expect((try? await late.opening().status) != 101)
            let other = try await self.begin(endpoint, for: "192.0.2.2")
            #expect(try await other.opening().status == 101)
        }
    }

    /// Messages that a client sends before it is authenticated fill the inbox as soon as the link exists.
    @Test func clientThatSendsEarlyIsNotReadWhileItsMessagesWait() async throws {
        let (authenticated, handles) = (Gate(), Gate())
        var options = WebSocketRouteOptions()
        options.authenticate = { _ in
            try? await authenticated.wait()
            return .allow()
        }
        try await self.with(
            options,
            handler: { connection in
                try await handles.wait()
                for await message in connection.messages where message.kind == .text { connection.post(message) }
            }
        ) { endpoint, server in
            let client = try await HostileClient(to: endpoint, opensWebSocket: false)
            let early = Array(repeating: WebSocketFrame.binary([]), count: 300)
            await client.perform(.glued(.opening(), .webSocketFrames(early)))
            try await eventually("the authentication") { server.authentications.running == 1 }
            authenticated.open()
            #expect(try await client.opening().status == 101)
            // More than the system holds between the two ends.
            let bulk = Array(repeating: WebSocketFrame.binary(ByteBuffer(repeating: 1, count: 1 << 20)), count: 64)
            #expect(await client.perform(.webSocketFrames(bulk), within: .seconds(2)) == .stalled)
            #expect(server.heldBytes < 16 << 20)
            handles.open()
        }
    }

    /// Nothing is read while a client is authenticated.
    @Test func fewBytesAreReadBeforeTheAuthentication() async throws {
        let authenticated = Gate()
        var options = WebSocketRouteOptions()
        options.authenticate = { _ in
            try? await authenticated.wait()
            return .allow()
        }
        try await self.with(options) { endpoint, server in
            let quiet = try await HostileClient(to: endpoint, opensWebSocket: false)
            await quiet.perform(.opening())
            try await eventually("the first") { server.authentications.running == 1 }
            let before = server.heldBytes
            let early = try await HostileClient(to: endpoint, opensWebSocket: false)
            // It fits into a connection's first read together with the request.
            let message = ByteBuffer(repeating: 1, count: 1_000)
            await early.perform(.glued(.opening(), .binary(message)))
            try await eventually("the second") { server.authentications.running == 2 }
            // More than the system holds between the two ends.
            let bulk = HostileClient.Act.binary(ByteBuffer(repeating: 2, count: 8_000)).times(8_000)
            #expect(await early.perform(bulk, within: .seconds(2)) == .stalled)
            #expect(server.heldBytes - before < 512 << 10, "\(server.heldBytes - before)")
            authenticated.open()
            #expect(try await early.opening().status == 101)
            #expect(try await early.message() == .binary(message))
            await early.perform(.reset)
            await quiet.perform(.reset)
            try await eventually("nothing is held") { server.heldBytes == 0 }
        }
    }
}
