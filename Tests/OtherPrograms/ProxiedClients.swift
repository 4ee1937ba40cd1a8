// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketServer
import HHSocketTesting
import NIOCore
import NIOPosix
import TestSupport
import Testing

/// Our servers, which a proxy tells the addresses of their clients.
enum ProxiedClients {
    private static func router() -> Router {
        var router = Router()
        router.handle(101) { _, context in
            ByteBuffer(string: Self.name(of: context.session.remoteAddress))
        }
        return router
    }

    /// The address and the port, without the host name that the system may have resolved.
    private static func name(of address: SocketAddress?) -> String {
        "\(address?.ipAddress ?? "unknown") \(address?.port ?? -1)"
    }

    private static func proxyHere() throws -> [IPNetwork] { [try IPNetwork("127.0.0.1")] }

    private static func addressSeen(by client: HostileClient) async throws -> String {
        await client.perform(.request(101, serial: 50))
        return String(buffer: try await client.response().payload)
    }

    /// Connects clients through a TCP balancer that sends PROXY headers.
    ///
    /// - Parameter isSecure: Whether it passes TLS on.
    static func arriveWithHeaders(isSecure: Bool, _ balance: BalancedServers.Balance) async throws {
        var listener = ServerListener()
        listener.proxies.proxyProtocol = try Self.proxyHere()
        if isSecure { listener.tls = ServerTLS(identity: try TestCertificate(.server).identity) }
        var configuration = SocketServer.Configuration(listeners: [listener])
        configuration.limits.maximumConnectionsPerAddress = 100
        let servers = [0, 1].map { _ in SocketServer(configuration: configuration, router: Self.router()) }
        for server in servers { try await server.start() }
        let ports = try servers.map { try #require($0.address?.port) }
        var tls: ClientTLS?
        if isSecure {
            tls = ClientTLS()
            tls?.trust = try TestAuthority().trust
        }
        let result = await Result {
            try await balance(ports) { [tls] port in
                var clients: [HostileClient] = []
                for _ in 0..<8 {
                    let client = try await HostileClient(to: Endpoint(host: "127.0.0.1", port: port), tls: tls)
                    #expect(try await Self.addressSeen(by: client) == Self.name(of: client.localAddress))
                    clients.append(client)
                }
                // The clients need not be distributed evenly.
                #expect(servers.allSatisfy { $0.connectionCount > 0 })
                // Ten health checks of each server, if there are any. Most are reset before they are accepted.
                let end = ContinuousClock.now + .seconds(1)
                while ContinuousClock.now < end {
                    for client in clients { _ = try await Self.addressSeen(by: client) }
                }
                for server in servers {
                    #expect(server.statistics[.proxyHeaderFailures] == 0 && server.statistics[.protocolErrors] == 0)
                }
                withExtendedLifetime(clients) {}
            }
        }
        for server in servers { await server.shutdown(gracePeriod: .zero) }
        try result.get()
    }

    // MARK: HTTP

    private static func open(_ port: Int, _ headers: KeyValuePairs<String, String>) async throws -> HostileClient {
        let endpoint = try Endpoint(url: "ws://127.0.0.1:\(port)/rpc")
        let client = try await HostileClient(to: endpoint, opensWebSocket: false)
        await client.perform(.opening(headers: headers))
        #expect(try await client.opening().status == 101)
        return client
    }

    /// Opens WebSockets through an HTTP proxy at 127.0.0.1 that appends to `X-Forwarded-For`.
    static func openWebSockets(_ balance: (_ ports: [Int], _ body: (Int) async throws -> Void) async throws -> Void)
        async throws
    {
        var listener = try ServerListener(url: "ws://127.0.0.1:0/rpc")
        listener.proxies.forwardedFor = try Self.proxyHere()
        let servers = [0, 1].map { _ in
            SocketServer(configuration: .init(listeners: [listener]), router: Self.router())
        }
        let (addresses, seen) = AsyncStream.makeStream(of: String.self)
        for server in servers {
            try server.webSocket("/chat") { connection in
                seen.yield(Self.name(of: connection.remoteAddress))
                for await _ in connection.messages {}
            }
            try await server.start()
        }
        let ports = try servers.map { try #require($0.address?.port) }
        let result = await Result {
            try await balance(ports) { port in
                let plain = try await Self.open(port, [:])
                #expect(try await Self.addressSeen(by: plain) == "127.0.0.1 0")
                // The client has the address of a trusted proxy.
                let behind = try await Self.open(port, ["X-Forwarded-For": "nobody, [2001:db8::1]:4711"])
                #expect(try await Self.addressSeen(by: behind) == "2001:db8::1 4711")
                #if os(Linux)
                // This client's address is not trusted.
                let liar = try await Self.openElsewhere(port)
                #expect(try await first(of: addresses, "a WebSocket") == "127.0.0.2 0")
                try await liar.close()
                #endif
            }
        }
        for server in servers { await server.shutdown(gracePeriod: .zero) }
        try result.get()
    }

    /// Opens a WebSocket from 127.0.0.2, and claims another client's address.
    private static func openElsewhere(_ port: Int) async throws -> any Channel {
        let channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .bind(to: SocketAddress(ipAddress: "127.0.0.2", port: 0))
            .connect(to: SocketAddress(ipAddress: "127.0.0.1", port: port))
            .get()
        let request = """
            GET /chat HTTP/1.1\r
            Host: 127.0.0.1:\(port)\r
            Upgrade: websocket\r
            Connection: Upgrade\r
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r
            Sec-WebSocket-Version: 13\r
            X-Forwarded-For: 203.0.113.9\r
            \r

            """
        try await channel.writeAndFlush(ByteBuffer(string: request))
        return channel
    }
}
