// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketServer
import NIOCore
import TestSupport
import Testing

/// Two of our servers behind a third-party balancer, one of which ends.
enum BalancedServers {
    /// The transport of the calls.
    enum Carrier {
        case tcp
        /// A WebSocket, through a balancer of HTTP.
        case webSocket

        func listener() throws -> ServerListener {
            switch self {
            case .tcp: ServerListener()
            case .webSocket: try ServerListener(url: "ws://127.0.0.1:0/rpc")
            }
        }

        func endpoint(_ port: Int) throws -> Endpoint {
            switch self {
            case .tcp: Endpoint(host: "127.0.0.1", port: port)
            case .webSocket: try Endpoint(url: "ws://127.0.0.1:\(port)/rpc")
            }
        }
    }

    /// Runs its second argument with the port of a balancer before servers on these ports.
    typealias Balance = (_ ports: [Int], _ body: (Int) async throws -> Void) async throws -> Void

    /// Starts a server whose answers name the server and the connection.
    private static func start(_ name: String, _ carrier: Carrier) async throws -> SocketServer {
        var router = Router()
        router.handle(101) { _, _ in ByteBuffer(string: name) }
        // Longer than a balancer takes to notice that a server does not accept connections any more.
        router.handle(102) { _, _ in
            try await Task.sleep(for: .seconds(4))
            return ByteBuffer(string: name)
        }
        let server = SocketServer(configuration: .init(listeners: [try carrier.listener()]), router: router)
        try await server.start()
        return server
    }

    /// Makes calls through the balancer from several clients, kills one server, and continues.
    static func killOne(_ carrier: Carrier, _ balance: Balance) async throws {
        let servers = [try await Self.start("first", carrier), try await Self.start("second", carrier)]
        let ports = try servers.map { try #require($0.address?.port) }
        try await balance(ports) { port in
            let endpoint = try carrier.endpoint(port)
            let clients = (0..<8).map { _ in
                SocketClient.connecting(to: endpoint) {
                    // Calls in flight when their server was killed may have been run; these may be run twice.
                    $0.retryPolicy = RetryPolicy(maximumAttempts: 10)
                    $0.timeout = .seconds(60)
                    $0.socket.backoff.base = .milliseconds(50)
                    $0.socket.backoff.cap = .milliseconds(500)
                }
            }
            var request = SocketRequest(type: 101)
            request.isIdempotent = true
            request.waitsForConnectivity = true
            var answered: Set<String> = []
            for client in clients { answered.insert(try await client.data(for: request).string) }
            #expect(answered == ["first", "second"])

            await servers[0].shutdown(gracePeriod: .zero)
            for _ in 0..<10 {
                for client in clients { #expect(try await client.data(for: request).string == "second") }
            }
            for client in clients { await client.close() }
        }
        for server in servers { await server.shutdown(gracePeriod: .zero) }
    }

    /// Drains a server behind the balancer: no call fails, not even one that takes long.
    static func drainOne(_ carrier: Carrier, _ balance: Balance) async throws {
        let servers = [try await Self.start("first", carrier), try await Self.start("second", carrier)]
        let ports = try servers.map { try #require($0.address?.port) }
        try await balance(ports) { port in
            let endpoint = try carrier.endpoint(port)
            let clients = (0..<8).map { _ in SocketClient.connecting(to: endpoint) { $0.timeout = .seconds(60) } }
            var answered: Set<String> = []
            for client in clients { answered.insert(try await client.data(for: SocketRequest(type: 101)).string) }
            #expect(answered == ["first", "second"])
            async let long = withThrowingTaskGroup(of: String.self) { group in
                for client in clients {
                    group.addTask { try await client.data(for: SocketRequest(type: 102)).string }
                }
                return try await group.reduce(into: Set()) { $0.insert($1) }
            }
            try await eventually("the long calls have arrived") {
                servers.reduce(0) { $0 + $1.requestsInFlight } == clients.count
            }
            async let drained: Void = servers[0].shutdown(gracePeriod: .seconds(60))
            try await eventually("all clients have moved") { servers[1].connectionCount >= clients.count }
            for client in clients {
                #expect(try await client.data(for: SocketRequest(type: 101)).string == "second")
            }
            #expect(try await long == ["first", "second"])
            await drained
            for client in clients { await client.close() }
        }
        for server in servers { await server.shutdown(gracePeriod: .zero) }
    }
}
