// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketServer
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// Calls over WebSocket, between our client and our server.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct WebSocketCallTests {
    static func with(
        _ urls: [String] = ["ws://127.0.0.1:0/rpc"],
        tls: ServerTLS? = nil,
        router: Router = .echo,
        change: (inout SocketServer.Configuration) -> Void = { _ in },
        _ body: (SocketServer, [Endpoint]) async throws -> Void
    ) async throws {
        let listeners = try urls.map { try ServerListener(url: $0, tls: tls) }
        var configuration = SocketServer.Configuration(listeners: listeners)
        change(&configuration)
        let server = SocketServer(configuration: configuration, router: router)
        try await server.start()
        let result = await Result { try await body(server, server.addresses) }
        await server.shutdown(gracePeriod: .zero)
        try result.get()
    }

    private func echo(_ client: SocketClient, _ text: String = "hello") async throws {
        let answer = try await client.data(for: SocketRequest(type: 101, body: text))
        #expect(answer.string == text)
    }

    private func url(_ address: Endpoint, _ path: String = "/rpc", scheme: String = "ws") throws -> Endpoint {
        try Endpoint(url: "\(scheme)://\(address.host):\(address.port)\(path)")
    }

    @Test func callsOfAllSizesAndPushesPass() async throws {
        try await Self.with { server, addresses in
            #expect(addresses[0].description.hasPrefix("ws://127.0.0.1:"))
            #expect(addresses[0].description.hasSuffix("/rpc"))
            let client = SocketClient.connecting(to: addresses[0])
            for length in [0, 1, 125, 126, 65_500, 65_536, 1 << 20] {
                try await self.echo(client, String(repeating: "x", count: length))
            }
            try await withThrowingTaskGroup { group in
                for number in 0..<500 { group.addTask { try await self.echo(client, "call \(number)") } }
                try await group.waitForAll()
            }
            let pushes = client.pushes(ofType: 2_001)
            async let pushed = first(of: pushes, "a push")
            try await self.echo(client)
            try await eventually("a client that takes it") {
                await server.push(type: 2_001, body: ByteBuffer(string: "news")) == 1
            }
            #expect(try await pushed.body == ByteBuffer(string: "news"))
            await client.close()
        }
    }

    @Test(arguments: [(false, false), (true, false), (false, true), (true, true)])
    func compressionIsHellosOrTheWebSockets(client offers: Bool, server accepts: Bool) async throws {
        let features = NIOLockedValueBox<Set<ProtocolFeature>>([])
        var router = Router()
        router.handle(101) { request, context in
            features.withLockedValue { $0 = context.session.features }
            return request.body
        }
        try await Self.with(router: router) {
            if accepts { $0.listeners[0].webSocket?.compression = WebSocketCompression() }
        } _: { _, addresses in
            let client = SocketClient.connecting(to: addresses[0]) {
                $0.hello = HelloPolicy()
                $0.compression = CompressionPolicy(minimumLength: 100)
                if offers { $0.socket.webSocket.compression = WebSocketCompression() }
            }
            // The longest message, one byte less and more, and bodies that do not get shorter.
            for length in [0, 1, 100, 256, 65_515, 65_519, 65_520, 1 << 20] {
                try await self.echo(client, String(repeating: "compress ", count: length / 9 + 1))
            }
            let noise = (0..<100_000).map { _ in UInt8.random(in: 0...255) }
            let answer = try await client.data(for: SocketRequest(type: 101, body: ByteBuffer(bytes: noise)))
            #expect(answer.body == ByteBuffer(bytes: noise))
            #expect(features.withLockedValue { $0.contains(.compression) } == !(offers && accepts))
            #expect(features.withLockedValue { $0.contains(.metadata) })
            await client.close()
        }
    }

    @Test func onePortTakesBothKinds() async throws {
        try await Self.with(["tcp+ws://127.0.0.1:0/rpc"]) { server, addresses in
            #expect(!addresses[0].isWebSocket)
            let webSocket = SocketClient.connecting(to: try self.url(addresses[0]))
            let plain = SocketClient.connecting(to: addresses[0])
            try await self.echo(webSocket)
            try await self.echo(plain)
            // A silent client is connected from the start.
            let silent = try await RawPeer(addresses[0])
            try await eventually("three clients") {
                await server.push(type: 2_001, body: ByteBuffer(string: "news")) == 3
            }
            _ = try await silent.take("the push") { $0.count >= 20 ? 20 : nil }
            await silent.close()
            await webSocket.close()
            await plain.close()
        }
    }

    @Test func tlsIsBelowWebSockets() async throws {
        let authority = try TestAuthority()
        let tls = ServerTLS(identity: try TestCertificate(.server).identity)
        try await Self.with(["wss://127.0.0.1:0/rpc", "tcp+wss://127.0.0.1:0/rpc"], tls: tls) { _, addresses in
            #expect(addresses[0].description.hasPrefix("wss://"))
            for endpoint in [addresses[0], try self.url(addresses[1], scheme: "wss")] {
                let client = SocketClient.connecting(to: endpoint) {
                    var tls = ClientTLS()
                    tls.trust = authority.trust
                    $0.socket.tls = tls
                }
                try await self.echo(client, String(repeating: "long ", count: 100_000))
                await client.close()
            }
            // Without a configuration it is the default one, which does not know the authority.
            let stranger = SocketClient.connecting(to: addresses[0])
            #expect(try await self.failure(stranger).code == .tlsFailed)
            let plain = SocketClient.connecting(to: try self.url(addresses[0])) { $0.socket.tls = ClientTLS() }
            let error = try await self.failure(plain)
            #expect(error.code == .invalidArgument)
            #expect(error.message.contains("wss"))
        }
    }

    private func failure(_ client: SocketClient) async throws -> SocketError {
        let event = try await first(of: client.events, "a failure") {
            if case .connectFailed = $0 { true } else { false }
        }
        guard case .connectFailed(let error) = event else { throw Unexpected(description: "\(event)") }
        await client.close()
        return error
    }

    @Test func formatsHaveSubprotocolsOfTheirOwn() async throws {
        let listener = try ServerListener(url: "ws://127.0.0.1:0/", wireFormat: .plain)
        let server = SocketServer(configuration: .init(listeners: [listener]), router: .echo)
        try await server.start()
        let address = try #require(server.address)
        let client = SocketClient.connecting(to: address) { $0.socket.wireFormat = .plain }
        try await self.echo(client)
        await client.close()
        let other = SocketClient.connecting(to: address)
        let error = try await self.failure(other)
        #expect(error.code == .handshakeRefused)
        #expect((error.underlying as? WebSocketRefusal)?.status == 400)
        await server.shutdown(gracePeriod: .zero)
        // A session id may begin with a letter, and has no subprotocol.
        let session = try WireFormat.tgcd(sessionIDLength: 8)
        for (url, name, word) in [("tcp+ws", "session", "letter"), ("ws", nil, "subprotocol")] {
            var listener = try ServerListener(url: "\(url)://127.0.0.1:0/", wireFormat: session)
            listener.webSocket?.subprotocol = name
            let server = SocketServer(configuration: .init(listeners: [listener]), router: Router())
            let error = await #expect(throws: SocketError.self) { try await server.start() }
            #expect(error?.code == .invalidArgument)
            #expect(error?.message.contains(word) == true)
        }
    }

    @Test func refusalIsReportedWithStatusHeadersAndBodyAndRetryAfterIsHonoured() async throws {
        let asked = NIOLockedValueBox<[String?]>([])
        try await Self.with(change: {
            $0.listeners[0].webSocket?.authenticate = { request in
                let count = asked.withLockedValue { asked in
                    asked.append(request.header("AUTHORIZATION"))
                    return asked.count
                }
                guard count > 1 else {
                    return .refuse(status: 503, headers: [(name: "Retry-After", value: "1")], text: "come back later")
                }
                return .allow()
            }
        }) { _, addresses in
            let began = ContinuousClock.now
            let client = SocketClient.connecting(to: addresses[0]) {
                $0.waitsForConnectivity = true
                $0.socket.webSocket.prepare = { request in
                    var request = request
                    request.headers.append((name: "Authorization", value: "token"))
                    request.path += "?a=b"
                    return request
                }
            }
            let event = try await first(of: client.events, "the refusal") {
                if case .connectFailed = $0 { true } else { false }
            }
            guard case .connectFailed(let error) = event else { return }
            #expect(error.code == .handshakeRefused)
            #expect(error.message.contains("503"))
            let refusal = try #require(error.underlying as? WebSocketRefusal)
            #expect(refusal.status == 503)
            #expect(String(buffer: refusal.body) == "come back later\n")
            #expect(refusal.headers.contains { $0.name == "Retry-After" && $0.value == "1" })
            #expect(refusal.retryAfter == .seconds(1))
            try await self.echo(client)
            #expect(ContinuousClock.now - began >= .seconds(1))
            #expect(asked.withLockedValue { $0 } == ["token", "token"])
            await client.close()
        }
    }

    @Test func originsAreChecked() async throws {
        try await Self.with(change: { $0.listeners[0].webSocket?.origins = .list(["https://good.example"]) }) {
            _,
            addresses in
            for (origin, isAllowed) in [("https://good.example", true), ("https://evil.example", false)] {
                let client = SocketClient.connecting(to: addresses[0]) { $0.socket.webSocket.origin = origin }
                if isAllowed {
                    try await self.echo(client)
                    await client.close()
                } else {
                    let error = try await self.failure(client)
                    #expect((error.underlying as? WebSocketRefusal)?.status == 403)
                }
            }
            let noBrowser = SocketClient.connecting(to: addresses[0])
            try await self.echo(noBrowser)
            await noBrowser.close()
        }
    }

    @Test func redirectIsALegOfTheAttemptAndFixedHeadersDoNotCrossOrigins() async throws {
        let seen = NIOLockedValueBox<[String?]>([])
        try await Self.with(change: {
            $0.listeners[0].webSocket?.authenticate = { request in
                seen.withLockedValue { $0.append(request.header("Authorization")) }
                return .allow()
            }
        }) { _, addresses in
            let target = addresses[0]
            let redirector = try await MockServer(webSocket: "/entry")
            redirector.onOpening(.redirect(to: "\(target)", status: 307))
            let entry = try self.url(redirector.endpoint, "/entry?secret=1")
            let redirected = NIOLockedValueBox<[Bool]>([])
            let client = SocketClient.connecting(to: entry) {
                $0.socket.webSocket.headers = [(name: "Authorization", value: "Bearer x")]
                $0.socket.webSocket.prepare = { request in
                    redirected.withLockedValue { $0.append(request.isRedirected) }
                    return request
                }
            }
            try await self.echo(client)
            let request = try await redirector.opening(0)
            #expect((request.path, request.query) == ("/entry", "secret=1"))
            #expect(request.header("Authorization") == "Bearer x")
            #expect(seen.withLockedValue { $0 } == [nil])
            #expect(redirected.withLockedValue { $0 } == [false, true])
            // The query is not shown.
            #expect(client.history.entries.allSatisfy { !"\($0)".contains("secret") })
            #expect(!"\(entry)".contains("secret"))
            #expect(!"\(dump(entry))".contains("secret"))
            await client.close()
        }
    }

    @Test func endlessRedirectsEnd() async throws {
        let redirector = try await MockServer(webSocket: "/again")
        redirector.onOpening(.redirect(to: "/again"))
        let client = SocketClient.connecting(to: redirector.endpoint) {
            $0.socket.backoff.maximumRounds = 1
        }
        let error = try await self.failure(client)
        #expect(error.code == .handshakeRefused)
        #expect(error.message.contains("redirected more than 5 times"))
        #expect(redirector.acceptedCount == 6)
    }

    @Test(arguments: [Proxy.Kind.http, .socks5]) func proxiesLeadToWebSockets(kind: Proxy.Kind) async throws {
        try await Self.with { _, addresses in
            let proxy = try await TestProxy(kind) { $0.hosts = ["db.example": addresses[0]] }
            let endpoint = try Endpoint(url: "ws://db.example:\(addresses[0].port)/rpc?x=1")
            let client = SocketClient.connecting(to: endpoint) { $0.socket.proxy = proxy.proxy() }
            try await self.echo(client)
            #expect(proxy.asked == ["db.example:\(addresses[0].port)"])
            await client.close()
        }
    }

    @Test func drainingServerIsLeftForAnother() async throws {
        try await Self.with { first, firstAddresses in
            try await Self.with { second, secondAddresses in
                let client = SocketClient.connecting(to: firstAddresses[0], secondAddresses[0])
                try await self.echo(client)
                await first.shutdown()
                try await self.echo(client)
                #expect(second.statistics[.requests] == 1)
                await client.close()
            }
        }
    }
}
