// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTesting
import InMemoryLogging
import Logging
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Answers with the client's address as its handler sees it.
private let address: UInt32 = 100
/// Fails.
private let failing: UInt32 = 101

extension HostileClient {
    /// The client's address according to the server; `own` for the address of the test's own connection.
    fileprivate func addressSeen(serial: UInt32 = 50) async throws -> String {
        await self.perform(.request(address, serial: serial))
        let answer = try await self.response()
        #expect((answer.serial, answer.status) == (serial, .ok))
        let text = String(buffer: answer.payload)
        return text == self.ownAddress ? "own" : text
    }

    private var ownAddress: String { self.localAddress.map { "\($0)" } ?? "" }
}

/// A server behind proxies that the tests simulate, at 127.0.0.1, which is listed.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ProxiedListenerTests {
    private static let client = "[IPv4]192.0.2.7:4711"
    private let log = InMemoryLogHandler()
    private let here: [IPNetwork]

    init() throws {
        self.here = [try IPNetwork("127.0.0.0/8")]
    }

    private var warnings: [InMemoryLogHandler.Entry] { self.log.entries.filter { $0.level >= .warning } }

    private var firstReason: String { self.warnings.first?.metadata["reason"]?.description ?? "" }

    private func with(
        _ proxies: ServerProxies,
        _ listener: ServerListener = ServerListener(),
        limits: (inout ServerLimits) -> Void = { _ in },
        _ body: (SocketServer) async throws -> Void
    ) async throws {
        var router = Router()
        router.handleSynchronously(address) { _, context in
            ByteBuffer(string: context.session.remoteAddress.map { "\($0)" } ?? "unknown")
        }
        router.handle(failing) { _, _ in throw Unexpected(description: "it fails") }
        var listener = listener
        listener.proxies = proxies
        var configuration = SocketServer.Configuration(listeners: [listener])
        limits(&configuration.limits)
        configuration.logger = Logger(label: "test", factory: { [log] _ in log })
        try await withServer(configuration, router) { try await body($0) }
    }

    /// Connects a client that first sends the header of its proxy.
    private func connect(_ server: SocketServer, _ header: [UInt8]) async throws -> HostileClient {
        let client = try await HostileClient.connect(to: server.address)
        await client.perform(.raw(header))
        return client
    }

    // MARK: The PROXY protocol

    @Test(arguments: [ProxyHeaders.lineTCP4, ProxyHeaders.blockTCP4])
    func theClientsAddressIsTheHeaders(header: [UInt8]) async throws {
        try await self.with(ServerProxies(proxyProtocol: self.here)) { server in
            #expect(try await self.connect(server, header).addressSeen() == Self.client)
            let glued = try await HostileClient.connect(to: server.address)
            await glued.perform(.glued(.raw(header), .request(address, serial: 50)))
            #expect(try await String(buffer: glued.response().payload) == Self.client)
            let dribbling = try await HostileClient.connect(to: server.address)
            await dribbling.perform(.glued(.raw(header), .request(address, serial: 50)).dribbled())
            #expect(try await String(buffer: dribbling.response().payload) == Self.client)
            #expect(server.statistics[.connectionsAccepted] == 3 && server.statistics[.proxyHeaderFailures] == 0)
        }
    }

    @Test(arguments: [ProxyHeaders.local, Array("PROXY UNKNOWN\r\n".utf8), ProxyHeaders.block(family: 0, [])])
    func aProxysOwnConnectionHasItsAddressAndNoLimitsOfAnAddress(header: [UInt8]) async throws {
        let proxies = ServerProxies(proxyProtocol: self.here)
        try await self.with(proxies, limits: { $0.maximumConnectionsPerAddress = 1 }) { server in
            var clients: [HostileClient] = []
            for _ in 0..<3 {
                clients.append(try await self.connect(server, header))
                #expect(try await clients.last?.addressSeen() == "own")
            }
            #expect(server.connectionCount == 3)
            withExtendedLifetime(clients) {}
        }
    }

    @Test func theLimitOfAnAddressIsTheClients() async throws {
        let proxies = ServerProxies(proxyProtocol: self.here)
        try await self.with(proxies, limits: { $0.maximumConnectionsPerAddress = 1 }) { server in
            let first = try await self.connect(server, ProxyHeaders.lineTCP4)
            #expect(try await first.addressSeen() == Self.client)
            let other = try await self.connect(server, ProxyHeaders.line(from: "192.0.2.8"))
            #expect(try await other.addressSeen() == "[IPv4]192.0.2.8:4711")
            let second = try await self.connect(server, ProxyHeaders.blockTCP4)
            #expect(try await second.response().type == FrameType.goAway)
            try await second.ended()
            #expect(server.statistics[.connectionsRefusedByAddress] == 1)
            // Its place is free again once it has disconnected.
            await first.perform(.reset)
            try await eventually("one connection") { server.connectionCount == 1 }
            try await eventually("a place") {
                let third = try await self.connect(server, ProxyHeaders.blockTCP4)
                await third.perform(.request(address, serial: 50))
                return try await third.response().type == address
            }
        }
    }

    /// Whoever binds a socket chooses its path, which the proxy passes on.
    @Test func aPathAsTheClientsAddressForgesNoLine() async throws {
        try await self.with(ServerProxies(proxyProtocol: self.here)) { server in
            let path = Array("/x\n2026-11-28 critical: forged\r\u{1B}[2J\u{202E}".utf8)
            let addresses = path + [UInt8](repeating: 0, count: 2 * 108 - path.count)
            let client = try await self.connect(server, ProxyHeaders.block(family: 0x31, addresses))
            await client.perform(.request(failing, serial: 50))
            _ = try await client.response()
            try await eventually("the failure") { self.log.entries.contains { $0.message == "a handler failed" } }
            for entry in self.log.entries {
                let values = entry.metadata.values.map(\.description)
                #expect(!values.contains { $0.contains { $0.isNewline || $0 == "\u{1B}" } }, "\(entry)")
            }
            let remote = self.log.entries.first { $0.message == "a handler failed" }?.metadata["remote"]?.description
            let escaped = "/x\\n2026-11-28 critical: forged\\r\\u{1B}[2J\\u{202E}"
            #expect(remote?.hasSuffix(escaped) == true, "\(remote ?? "none")")
        }
    }

    @Test func elsewhereAHeaderIsMalformedBytes() async throws {
        let proxies = ServerProxies(proxyProtocol: [try IPNetwork("192.0.2.0/24")])
        try await self.with(proxies) { server in
            #expect(try await HostileClient.connect(to: server.address).addressSeen() == "own")
            let liar = try await self.connect(server, ProxyHeaders.lineTCP4)
            #expect(try await liar.response().status == .illegalLength)
            try await liar.ended()
            #expect(server.statistics[.protocolErrors] == 1 && server.statistics[.proxyHeaderFailures] == 0)
        }
    }

    @Test(arguments: [
        (Array("GET / HTTP/1.1\r\n\r\n".utf8), "begins without one"), (Array("PROXY TCP4 a b\r\n".utf8), "its line"),
        (ProxyHeaders.block(version: 3, family: 0x11, []), "version is 3"),
        (ProxyHeaders.block(family: 0x11, length: 65_535, []), "65535 bytes"),
    ])
    func aMalformedHeaderIsClosedCountedAndLogged(header: [UInt8], reason: String) async throws {
        try await self.with(ServerProxies(proxyProtocol: self.here)) { server in
            let client = try await self.connect(server, header)
            try await client.ended()
            #expect(server.statistics[.proxyHeaderFailures] == 1 && server.statistics[.connectionsAccepted] == 0)
            try await eventually("a line") { self.warnings.count == 1 }
            let warning = try #require(self.warnings.first)
            #expect(warning.message == "a proxy sent no valid PROXY header")
            #expect(self.firstReason.contains(reason))
            #expect(warning.metadata["remote"]?.description.contains("127.0.0.1") == true)
            // Other clients are served.
            #expect(try await self.connect(server, ProxyHeaders.lineTCP4).addressSeen() == Self.client)
        }
    }

    @Test(arguments: [[], Array("PROXY TCP4 192".utf8), Array(ProxyHeaders.blockTCP4.dropLast())])
    func aHeaderThatDoesNotComeIsATimeout(part: [UInt8]) async throws {
        var proxies = ServerProxies(proxyProtocol: self.here)
        proxies.headerTimeout = .milliseconds(100)
        try await self.with(proxies) { server in
            let client = try await self.connect(server, part)
            try await client.ended()
            #expect(server.statistics[.proxyHeaderFailures] == 1)
            try await eventually("a line") { self.warnings.count == 1 }
            #expect(self.firstReason.contains("0.1 seconds"))
        }
    }

    /// Health checks of balancers connect like this.
    @Test func aConnectionThatEndsInSilenceIsNoFault() async throws {
        try await self.with(ServerProxies(proxyProtocol: self.here)) { server in
            for act in [.halfClose, .close, .reset] as [HostileClient.Act] {
                let check = try await HostileClient.connect(to: server.address)
                await check.perform(act)
                try await check.ended()
            }
            #expect(try await self.connect(server, ProxyHeaders.lineTCP4).addressSeen() == Self.client)
            let broken = try await self.connect(server, Array("PROXY ".utf8))
            await broken.perform(.halfClose)
            try await broken.ended()
            #expect(server.statistics[.proxyHeaderFailures] == 1)
            try await eventually("a line") { self.warnings.count == 1 }
            #expect(self.firstReason.contains("ended within"))
        }
    }

    /// Its address is then no longer known, and must not be treated as one that is not listed.
    @Test func aCheckThatHasResetTheConnectionIsNoFault() async throws {
        try await self.with(ServerProxies(proxyProtocol: self.here)) { server in
            for header in [ProxyHeaders.local, ProxyHeaders.lineTCP4, Array("PROXY ".utf8), []] {
                for _ in 0..<20 {
                    let check = try await self.connect(server, header)
                    await check.perform(.reset)
                }
            }
            #expect(try await self.connect(server, ProxyHeaders.lineTCP4).addressSeen() == Self.client)
            #expect(server.statistics[.protocolErrors] == 0)
        }
    }

    @Test func connectionsWithoutAHeaderDoNotHoldUpAShutdown() async throws {
        try await self.with(ServerProxies(proxyProtocol: self.here)) { server in
            let silent = try await self.connect(server, Array("PROXY ".utf8))
            // The server has noticed the reset once others are served, or closes the connection when it does.
            #expect(try await self.connect(server, ProxyHeaders.local).addressSeen() == "own")
            await server.shutdown(gracePeriod: .seconds(60))
            try await silent.ended()
            #expect(server.statistics[.proxyHeaderFailures] == 0)
        }
    }

    @Test func theHeaderIsBeforeTLS() async throws {
        let authority = try TestAuthority()
        let listener = ServerListener(tls: ServerTLS(identity: try TestCertificate(.server).identity))
        for header in [ProxyHeaders.lineTCP4, ProxyHeaders.blockTCP4] {
            try await self.with(ServerProxies(proxyProtocol: self.here), listener) { server in
                let proxy = try await TestProxy(.http) { $0.header = header }
                let client = SocketClient.connecting(to: try #require(server.address)) {
                    $0.socket.tls = ClientTLS()
                    $0.socket.tls?.trust = authority.trust
                    $0.socket.tls?.serverName = "localhost"
                    $0.socket.proxy = proxy.proxy()
                }
                #expect(try await client.data(for: SocketRequest(type: address)).string == Self.client)
                await client.close()
                #expect(server.statistics[.tlsFailures] == 0)
                // A TLS handshake is not a header.
                let direct = try await HostileClient.connect(to: server.address)
                await direct.perform(.raw([0x16, 3, 1, 0, 100]))
                try await direct.ended()
                #expect(server.statistics[.proxyHeaderFailures] == 1 && server.statistics[.tlsFailures] == 0)
            }
        }
    }

    /// The proxy's header is followed by the client's first bytes in one read.
    @Test func theHandshakeBehindAHeaderMayHaveToWait() async throws {
        let authority = try TestAuthority()
        let listener = ServerListener(tls: ServerTLS(identity: try TestCertificate(.server).identity))
        let proxies = ServerProxies(proxyProtocol: self.here)
        try await self.with(proxies, listener, limits: { $0.maximumHandshakes = 1 }) { server in
            // They take the handshake slots of each event loop, for a while.
            var silent: [HostileClient] = []
            for _ in 0..<2 * System.coreCount { silent.append(try await self.connect(server, ProxyHeaders.lineTCP4)) }
            let proxy = try await TestProxy(.http) { $0.header = ProxyHeaders.blockTCP4 }
            let client = SocketClient.connecting(to: try #require(server.address)) {
                $0.socket.tls = ClientTLS()
                $0.socket.tls?.trust = authority.trust
                $0.socket.tls?.serverName = "localhost"
                $0.socket.proxy = proxy.proxy()
            }
            let seen = try await client.data(for: SocketRequest(type: address)).string
            #expect(seen == Self.client)
            await client.close()
            #expect(proxy.asked.count == 1, "the connection was not made at once")
            withExtendedLifetime(silent) {}
        }
    }

    @Test func theLogNamesTheClient() async throws {
        var log = self.log
        log.logLevel = .debug
        var configuration = SocketServer.Configuration(listeners: [ServerListener()])
        configuration.listeners[0].proxies.proxyProtocol = self.here
        configuration.logger = Logger(label: "test", factory: { [log] _ in log })
        configuration.logger.logLevel = .debug
        try await withServer(configuration, .echo) { server in
            let client = try await self.connect(server, ProxyHeaders.lineTCP4)
            await client.perform(.ping())
            _ = try await client.response()
            // A separate thread writes the lines.
            let line = try await eventually("the line") { [log] in
                log.entries.first { $0.message == "a client has connected" }
            }
            #expect(line.metadata["remote"] == "\(Self.client)")
        }
    }

    // MARK: X-Forwarded-For

    private static func listener(sharesPort: Bool) -> ServerListener {
        var listener = ServerListener()
        listener.webSocket = WebSocketListening(path: "/rpc", sharesPort: sharesPort)
        return listener
    }

    /// Opens a WebSocket like an HTTP proxy, for its client.
    private func open(
        _ server: SocketServer,
        after header: [UInt8] = [],
        _ forwardedFor: String?
    ) async throws -> HostileClient {
        let port = try #require(server.address?.port)
        let endpoint = try Endpoint(url: "ws://127.0.0.1:\(port)/rpc")
        let client = try await HostileClient(to: endpoint, opensWebSocket: false)
        if !header.isEmpty { await client.perform(.raw(header)) }
        await client.perform(forwardedFor.map { .opening(headers: ["X-Forwarded-For": $0]) } ?? .opening())
        #expect(try await client.opening().status == 101)
        return client
    }

    /// The address of such a client according to the server.
    private func addressSeen(_ server: SocketServer, _ forwardedFor: String?) async throws -> String {
        try await self.open(server, forwardedFor).addressSeen()
    }

    @Test(arguments: [false, true])
    func anOpeningNamesTheClient(sharesPort: Bool) async throws {
        let listener = Self.listener(sharesPort: sharesPort)
        try await self.with(ServerProxies(forwardedFor: self.here), listener) { server in
            let cases = [
                ("192.0.2.7:4711", Self.client), ("203.0.113.9, 192.0.2.7:4711, 127.0.0.9", Self.client),
                ("[2001:db8::1]:4711", "[IPv6]2001:db8::1:4711"), ("192.0.2.7", "[IPv4]192.0.2.7:0"),
            ]
            for (forwardedFor, seen) in cases {
                #expect(try await self.addressSeen(server, forwardedFor) == seen)
            }
            #expect(try await self.addressSeen(server, nil) == "own")
            #expect(self.warnings.isEmpty)
            #expect(try await self.addressSeen(server, "192.0.2.7, unknown") == "own")
            try await eventually("a line") { self.warnings.count == 1 }
            #expect(self.warnings.first?.message == "an X-Forwarded-For field is malformed")
            #expect(self.warnings.first?.metadata["value"] == "unknown")
        }
    }

    @Test(arguments: [false, true])
    func openingsFromElsewhereNameNoClient(sharesPort: Bool) async throws {
        let proxies = ServerProxies(forwardedFor: [try IPNetwork("192.0.2.0/24")])
        try await self.with(proxies, Self.listener(sharesPort: sharesPort)) { server in
            for forwardedFor in ["192.0.2.7", "nonsense"] {
                let seen = try await self.addressSeen(server, forwardedFor)
                #expect(seen == "own")
            }
            #expect(self.warnings.isEmpty)
        }
    }

    @Test func theLimitOfAnAddressIsThatOfTheOpening() async throws {
        let proxies = ServerProxies(forwardedFor: self.here)
        for sharesPort in [false, true] {
            let listener = Self.listener(sharesPort: sharesPort)
            try await self.with(proxies, listener, limits: { $0.maximumConnectionsPerAddress = 1 }) { server in
                let first = try await self.open(server, "192.0.2.7")
                #expect(try await first.addressSeen() == "[IPv4]192.0.2.7:0")
                let other = try await self.open(server, "192.0.2.8")
                #expect(try await other.addressSeen() == "[IPv4]192.0.2.8:0")
                let own = [try await self.open(server, nil), try await self.open(server, nil)]
                for client in own { #expect(try await client.addressSeen() == "own") }
                let second = try await self.open(server, "192.0.2.7")
                #expect(try await second.response().type == FrameType.goAway)
                #expect(server.statistics[.connectionsRefusedByAddress] == 1)
                withExtendedLifetime((first, other, own)) {}
            }
        }
    }

    @Test func messagesHaveTheAddressOfTheOpening() async throws {
        var router = Router()
        router.handleSynchronously(address) { _, _ in ByteBuffer() }
        var configuration = SocketServer.Configuration(listeners: [Self.listener(sharesPort: true)])
        configuration.listeners[0].proxies.forwardedFor = self.here
        try await withServer(configuration, router) { server in
            try server.webSocket("/chat") { message, connection in
                connection.post(WebSocketMessage(connection.remoteAddress.map { "\($0)" } ?? "unknown"))
            }
        } _: { server in
            let port = try #require(server.address?.port)
            let endpoint = try Endpoint(url: "ws://127.0.0.1:\(port)/chat")
            let client = try await HostileClient(to: endpoint, opensWebSocket: false)
            await client.perform(.opening(headers: ["X-Forwarded-For": "203.0.113.9, 192.0.2.7:4711"]))
            #expect(try await client.opening().status == 101)
            await client.perform(.text("who am I?"))
            #expect(try await client.message().text == Self.client)
        }
    }

    /// The TCP balancer and the HTTP proxy may have one address.
    @Test func onASharedPortFramesAreServedAsWell() async throws {
        var listener = Self.listener(sharesPort: true)
        try await self.with(ServerProxies(forwardedFor: self.here), listener) { server in
            #expect(try await HostileClient.connect(to: server.address).addressSeen() == "own")
            let ended = try await HostileClient.connect(to: server.address)
            await ended.perform(.halfClose)
            try await ended.ended()
            #expect(server.statistics[.connectionsAccepted] == 1)
        }
        // A client that only listens is served after a while.
        listener.webSocket?.timeout = .milliseconds(100)
        try await self.with(ServerProxies(forwardedFor: self.here), listener) { server in
            let silent = try await HostileClient.connect(to: server.address)
            try await eventually("a connection") { server.connectionCount == 1 }
            #expect(await server.push(type: 200, body: ByteBuffer(string: "news")) == 1)
            #expect(try await silent.response().payload == ByteBuffer(string: "news"))
            #expect(try await silent.addressSeen() == "own")
        }
    }

    @Test(arguments: [false, true])
    func aHeaderMayNameAProxyOfHTTP(sharesPort: Bool) async throws {
        let proxies = ServerProxies(proxyProtocol: self.here, forwardedFor: [try IPNetwork("192.0.2.7")])
        try await self.with(proxies, Self.listener(sharesPort: sharesPort)) { server in
            let client = try await self.open(server, after: ProxyHeaders.blockTCP4, "203.0.113.9:80, 198.51.100.3:4711")
            #expect(try await client.addressSeen() == "[IPv4]198.51.100.3:4711")
            // The field of an unknown proxy is ignored.
            let liar = try await self.open(server, after: ProxyHeaders.line(from: "192.0.2.8"), "198.51.100.3")
            #expect(try await liar.addressSeen() == "[IPv4]192.0.2.8:4711")
        }
    }
}
