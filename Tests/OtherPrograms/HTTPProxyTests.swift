// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import HHSocketServer
import NIOCore
import TestSupport
import Testing

/// WebSockets through third-party HTTP proxies, if they are installed: calls, pushes and heartbeats, messages, servers
/// that end, and TLS that ends at the proxy.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct HTTPProxyTests {
    /// The ports at which a proxy accepts plain and TLS connections.
    struct Entry {
        var port: Int
        var securePort: Int
    }

    /// A proxy's configuration from `Operations.md`, with other addresses, a certificate and faster checks.
    private struct OperationsPageConfiguration {
        private var text: String

        init(_ language: String, ports: [Int], certificate: String) throws {
            let page = try DocumentationPage(guide: "Operations", section: "HTTP proxies")
            self.text = try #require(page.blocks(language).first)
            try self.replace("10.0.0.1:7000", "127.0.0.1:\(ports[0])")
            try self.replace("10.0.0.2:7000", "127.0.0.1:\(ports[1])")
            try self.replace("/etc/ssl/private/hhsocket.pem", certificate)
            switch language {
            case "haproxy": try self.replace("inter 1s", "inter 100ms")
            default: try self.replace("fail_timeout=2s", "fail_timeout=1s")
            }
        }

        mutating func replace(_ old: String, _ new: String) throws {
            try #require(self.text.contains(old), "the configuration is another one: it lacks \(old)")
            self.text = self.text.replacingOccurrences(of: old, with: new)
        }

        func text(listeningAt entry: Entry) throws -> String {
            var copy = self
            try copy.replace("0.0.0.0:8000", "127.0.0.1:\(entry.port)")
            try copy.replace("0.0.0.0:8443", "127.0.0.1:\(entry.securePort)")
            return copy.text + "\n"
        }
    }

    /// This test requires no proxy.
    @Test(arguments: ["haproxy", "nginx"])
    func thePageHasAConfiguration(language: String) throws {
        let configuration = try OperationsPageConfiguration(language, ports: [1, 2], certificate: "/cert.pem")
        let text = try configuration.text(listeningAt: Entry(port: 3, securePort: 4))
        for part in ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:4", "/cert.pem"] {
            #expect(text.contains(part))
        }
    }

    /// Runs `body` with a proxy before servers on these ports.
    typealias Balance = (_ ports: [Int], _ body: (Entry) async throws -> Void) async throws -> Void

    /// A server of calls at `/rpc`, and of messages at `/chat`, that echoes.
    private func server(port: Int = 0) async throws -> SocketServer {
        var listener = ServerListener(port: port)
        listener.webSocket = WebSocketListening(path: "/rpc")
        let server = SocketServer(configuration: .init(listeners: [listener]), router: .echo)
        try server.webSocket("/chat") { connection in
            for await message in connection.messages {
                if message.text == "close" {
                    connection.close(code: 4_000, reason: "asked for")
                } else {
                    try await connection.send(message)
                }
            }
        }
        try await server.start()
        return server
    }

    private func with(
        _ balance: Balance,
        _ body: @escaping (SocketServer, Entry) async throws -> Void
    ) async throws {
        // The other server is down from the start.
        let server = try await self.server()
        let port = try #require(server.address?.port)
        let other = try await RealProxy.freePort()
        let result = await Result { try await balance([port, other]) { try await body(server, $0) } }
        await server.shutdown(gracePeriod: .zero)
        try result.get()
    }

    private func call(_ client: SocketClient, _ length: Int) async throws {
        let body = ByteBuffer(bytes: (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 31) })
        var request = SocketRequest(type: 101, body: body)
        request.waitsForConnectivity = true
        #expect(try await client.data(for: request).body == body)
    }

    // MARK: Tests of both

    private func callsPushesAndHeartbeatsPass(_ balance: Balance) async throws {
        try await self.with(balance) { server, entry in
            let endpoint = try Endpoint(url: "ws://127.0.0.1:\(entry.port)/rpc?x=1")
            let client = SocketClient.connecting(to: endpoint) {
                $0.timeout = .seconds(60)
                $0.socket.heartbeat = HeartbeatPolicy(interval: .milliseconds(50))
            }
            let pushes = client.pushes(ofType: 2_001)
            for length in [16, 1 << 20, 0, 65_536, 3 << 20] { try await self.call(client, length) }
            try await withThrowingTaskGroup { group in
                for _ in 0..<200 { group.addTask { try await self.call(client, 16) } }
                for _ in 0..<8 { group.addTask { try await self.call(client, 1 << 20) } }
                try await group.waitForAll()
            }
            let body = ByteBuffer(repeating: 7, count: 1 << 20)
            try await eventually("a client that takes pushes") { await server.push(type: 2_001, body: body) == 1 }
            #expect(try await first(of: pushes, "the push").body == body)
            let answered = server.statistics[.heartbeatsAnswered]
            try await eventually("ten heartbeats") { server.statistics[.heartbeatsAnswered] >= answered + 10 }
            // All calls used one connection.
            let connections = client.history.entries.filter { if case .connected = $0.kind { true } else { false } }
            #expect(connections.count == 1, "\(client.history)")
            await client.close()
        }
    }

    private func messagesPass(_ balance: Balance) async throws {
        try await self.with(balance) { _, entry in
            var configuration = try WebSocketLink.Configuration(url: "ws://127.0.0.1:\(entry.port)/chat")
            configuration.socket.backoff = Backoff(base: .milliseconds(20), cap: .milliseconds(100))
            let link = WebSocketLink(configuration: configuration)
            let events = link.events
            link.connect()
            var messages = link.messages.makeAsyncIterator()
            for length in [16, 1 << 20, 0, 65_536] {
                for kind in [WebSocketMessage.Kind.text, .binary] {
                    let message = WebSocketMessage(kind, ByteBuffer(repeating: 0x61, count: length))
                    try await link.send(message)
                    #expect(await messages.next() == message)
                }
            }
            _ = try await link.ping(ByteBuffer(string: "there"))
            // The server's code and reason are passed on, and the next connection is a new one.
            try await link.send(WebSocketMessage("close"))
            let event = try await first(of: events, "the close") { if case .closed = $0 { true } else { false } }
            guard case .closed(let closure) = event else { return }
            #expect(closure.code == 4_000 && closure.reason == "asked for" && closure.wasClean)
            try await link.send(WebSocketMessage("again"))
            #expect(await messages.next()?.text == "again")
            try link.disconnect(code: 3_001, reason: "bye")
            await link.waitUntilClosed()
        }
    }

    /// The only server is killed and restarted.
    private func refusalIsReportedAndTriedAgain(status: Int, _ balance: Balance) async throws {
        try await self.with(balance) { server, entry in
            let port = try #require(server.address?.port)
            let endpoint = try Endpoint(url: "ws://127.0.0.1:\(entry.port)/rpc")
            let (client, events) = SocketClient.connectingWithEvents(to: endpoint) {
                $0.timeout = .seconds(100)
                $0.socket.backoff = Backoff(base: .milliseconds(50), cap: .milliseconds(200))
            }
            try await self.call(client, 16)
            await server.shutdown(gracePeriod: .zero)
            let event = try await first(of: events, "the proxy's refusal") { event in
                guard case .connectFailed(let error) = event else { return false }
                return error.code == .handshakeRefused
            }
            guard case .connectFailed(let error) = event else { return }
            let refusal = try #require(error.underlying as? WebSocketRefusal)
            #expect(refusal.status == status)
            #expect(error.message.contains("\(status)"))
            let next = try await self.server(port: port)
            try await self.call(client, 1 << 20)
            #expect(next.statistics[.requests] == 1)
            await client.close()
            await next.shutdown(gracePeriod: .zero)
        }
    }

    private func tlsEndsAtTheProxy(_ balance: Balance) async throws {
        let authority = try TestAuthority()
        try await self.with(balance) { server, entry in
            var tls = ClientTLS()
            tls.trust = authority.trust
            // Some HTTP servers require the application protocol.
            tls.applicationProtocols = ["http/1.1"]
            let client = SocketClient.connecting(to: try Endpoint(url: "wss://127.0.0.1:\(entry.securePort)/rpc")) {
                $0.timeout = .seconds(60)
                $0.socket.tls = tls
            }
            for length in [16, 1 << 20] { try await self.call(client, length) }
            await client.close()
            var configuration = try WebSocketLink.Configuration(url: "wss://127.0.0.1:\(entry.securePort)/chat")
            configuration.socket.tls = tls
            let link = WebSocketLink(configuration: configuration)
            link.connect()
            var messages = link.messages.makeAsyncIterator()
            try await link.send(WebSocketMessage("through TLS"))
            #expect(await messages.next()?.text == "through TLS")
            link.disconnect()
            await link.waitUntilClosed()
            // Behind the proxy there is no TLS.
            #expect(server.statistics[.tlsFailures] == 0)
            #expect(server.address?.description.hasPrefix("wss") == false)
        }
    }

    /// The certificate and the key of a server on this machine, in one file in `folder`.
    private static func certificate(in folder: TemporaryFolder) throws -> String {
        let certificate = try TestCertificate(.server)
        return try folder.write(certificate.certificatePEM + certificate.keyPEM, to: "server.pem")
    }

    // MARK: HAProxy

    @Suite(
        .tags(.io),
        .enabled(
            if: RealProxy.haproxy != nil,
            "There is no haproxy: WebSockets through it are NOT TESTED here. Install the package haproxy."
        )
    )
    struct HAProxy {
        private let tests = HTTPProxyTests()

        private func balance(_ ports: [Int], _ body: (Entry) async throws -> Void) async throws {
            let folder = try TemporaryFolder()
            let certificate = try HTTPProxyTests.certificate(in: folder)
            let configuration = try OperationsPageConfiguration("haproxy", ports: ports, certificate: certificate)
            let securePort = try await RealProxy.freePort()
            let arguments: (String) -> [String] = { ["-db", "-f", $0] }
            try await RealProxy.with(RealProxy.haproxy, arguments: arguments) { port in
                try await body(Entry(port: port, securePort: securePort))
            } configuration: { port, _ in
                (try? configuration.text(listeningAt: Entry(port: port, securePort: securePort))) ?? ""
            }
        }

        private func balancePlain(_ ports: [Int], _ body: (Int) async throws -> Void) async throws {
            try await self.balance(ports) { try await body($0.port) }
        }

        @Test func callsPushesAndHeartbeatsPass() async throws {
            try await self.tests.callsPushesAndHeartbeatsPass(self.balance)
        }

        @Test func messagesPass() async throws { try await self.tests.messagesPass(self.balance) }

        @Test func oneServerIsKilled() async throws {
            try await BalancedServers.killOne(.webSocket, self.balancePlain)
        }

        @Test func oneServerDrains() async throws {
            try await BalancedServers.drainOne(.webSocket, self.balancePlain)
        }

        @Test func refusalIsReportedAndTriedAgain() async throws {
            try await self.tests.refusalIsReportedAndTriedAgain(status: 503, self.balance)
        }

        @Test func tlsEndsAtTheProxy() async throws { try await self.tests.tlsEndsAtTheProxy(self.balance) }

        @Test func serversKnowTheClients() async throws { try await ProxiedClients.openWebSockets(self.balancePlain) }
    }

    // MARK: nginx

    @Suite(
        .tags(.io),
        .enabled(
            if: RealProxy.nginx != nil,
            "There is no nginx: WebSockets through it are NOT TESTED here. Install the package nginx."
        )
    )
    struct Nginx {
        private let tests = HTTPProxyTests()

        private func balance(_ ports: [Int], _ body: (Entry) async throws -> Void) async throws {
            let folder = try TemporaryFolder()
            let certificate = try HTTPProxyTests.certificate(in: folder)
            var page = try OperationsPageConfiguration("nginx", ports: ports, certificate: certificate)
            // Its default folders belong to root.
            let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map {
                "\($0)_temp_path \(folder.file($0));"
            }
            try page.replace("http {", "http {\naccess_log off;\n\(folders.joined(separator: "\n"))")
            let configuration = page
            let securePort = try await RealProxy.freePort()
            let arguments: (String) -> [String] = { ["-g", "daemon off;", "-c", $0] }
            try await RealProxy.with(RealProxy.nginx, arguments: arguments) { port in
                try await body(Entry(port: port, securePort: securePort))
            } configuration: { port, _ in
                let text = (try? configuration.text(listeningAt: Entry(port: port, securePort: securePort))) ?? ""
                return """
                    pid \(folder.file("nginx.pid"));
                    error_log stderr crit;
                    worker_processes 1;
                    \(text)

                    """
            }
        }

        private func balancePlain(_ ports: [Int], _ body: (Int) async throws -> Void) async throws {
            try await self.balance(ports) { try await body($0.port) }
        }

        @Test func callsPushesAndHeartbeatsPass() async throws {
            try await self.tests.callsPushesAndHeartbeatsPass(self.balance)
        }

        @Test func messagesPass() async throws { try await self.tests.messagesPass(self.balance) }

        @Test func oneServerIsKilled() async throws {
            try await BalancedServers.killOne(.webSocket, self.balancePlain)
        }

        @Test func oneServerDrains() async throws {
            try await BalancedServers.drainOne(.webSocket, self.balancePlain)
        }

        @Test func refusalIsReportedAndTriedAgain() async throws {
            try await self.tests.refusalIsReportedAndTriedAgain(status: 502, self.balance)
        }

        @Test func tlsEndsAtTheProxy() async throws { try await self.tests.tlsEndsAtTheProxy(self.balance) }

        @Test func serversKnowTheClients() async throws { try await ProxiedClients.openWebSockets(self.balancePlain) }
    }
}
