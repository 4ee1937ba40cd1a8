// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketServer
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// The opening of a long link, as apps expect it: a wrong URL is a typed error; each attempt gets a fresh token, in the
/// path or in a header field; header fields, cookies and an origin are sent as given; a rejection is reported with
/// status, header fields and body and is retried; proxies and TLS work as they do for calls.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct LongLinkOpeningTests {
    typealias Server = ScriptedWebSocketServer

    @Test(arguments: [
        "", " ", "example.com", "http://example.com/", "tcp://example.com", "ws://", "ws:///path", "ws://a:0/",
        "ws://a:65536/", "ws://a/#fragment", "ws://a b/",
    ])
    func wrongURLIsATypedError(url: String) {
        let error = #expect(throws: SocketError.self) { try WebSocketLink.Configuration(url: url) }
        #expect(error?.code == .invalidArgument)
        #expect(error?.message.isEmpty == false)
    }

    @Test func serverThatIsNoURLFailsEachAttempt() async throws {
        let socket = SocketConfiguration(servers: [Endpoint(host: "127.0.0.1", port: 1)])
        let link = WebSocketLink(configuration: WebSocketLink.Configuration(socket: socket))
        let events = link.events
        link.connect()
        try await TestLink.event(events, "the refusal") { event in
            guard case .connectFailed(let error) = event else { return false }
            return error.code == .invalidArgument && error.message.contains("ws://127.0.0.1:1/path")
        }
        link.disconnect()
    }

    @Test func eachAttemptAsksForAFreshTokenInPathAndHeader() async throws {
        let server = try await Server()
        let tokens = NIOLockedValueBox(0)
        let link = try TestLink.make(server.url("/ws/token=")) {
            $0.socket.webSocket.prepare = { request in
                let token = tokens.withLockedValue { tokens in
                    tokens += 1
                    return tokens
                }
                var request = request
                request.path += "\(token)"
                request.headers.append((name: "Authorization", value: "Bearer \(token)"))
                return request
            }
        }
        link.connect()
        for number in 0..<3 {
            let request = try await server.value("request \(number)", of: number) {
                $0.request.isEmpty ? nil : $0.request
            }
            #expect(request.hasPrefix("GET /ws/token=\(number + 1) HTTP/1.1\r\n"))
            #expect(request.contains("\r\nAuthorization: Bearer \(number + 1)\r\n"))
            server.cut(number)
        }
        link.disconnect()
        await server.close()
    }

    @Test func missingTokenFailsTheAttemptAndIsRequestedAgain() async throws {
        struct NoToken: Error {}
        let server = try await Server()
        let asked = NIOLockedValueBox(0)
        let link = try TestLink.make(server.url()) {
            $0.socket.webSocket.prepare = { request in
                let isFirst = asked.withLockedValue { asked in
                    asked += 1
                    return asked == 1
                }
                if isFirst { throw NoToken() }
                return request
            }
        }
        let events = link.events
        link.connect()
        try await TestLink.event(events, "the failed attempt") { event in
            guard case .connectFailed(let error) = event else { return false }
            return error.underlying is NoToken
        }
        try await link.send(WebSocketMessage("hello"))
        try await server.connections.wait("the message") { $0.contains { $0.texts == ["hello"] } }
        link.disconnect()
        await server.close()
    }

    @Test func headersCookiesAndOriginAreSentAsTheyAreGiven() async throws {
        let server = try await Server()
        let link = try TestLink.make(server.url("/chat?room=1&x=%20")) {
            $0.socket.webSocket.headers = [
                (name: "Cookie", value: "session=abc; theme=dark"), (name: "X-Client", value: "app/1.0"),
            ]
            $0.socket.webSocket.origin = "https://app.example"
            $0.subprotocols = ["chat.v2", "chat.v1"]
        }
        link.connect()
        let request = try await server.value("the request") { $0.request.isEmpty ? nil : $0.request }
        #expect(request.hasPrefix("GET /chat?room=1&x=%20 HTTP/1.1\r\nHost: 127.0.0.1:\(server.port)\r\n"))
        for line in [
            "Cookie: session=abc; theme=dark", "X-Client: app/1.0", "Origin: https://app.example",
            "Sec-WebSocket-Protocol: chat.v2, chat.v1", "Sec-WebSocket-Version: 13",
        ] {
            #expect(request.contains("\r\n\(line)\r\n"), "\(request)")
        }
        // Nothing is offered by default, and no header field is empty.
        #expect(!request.contains("Sec-WebSocket-Extensions"))
        #expect(!request.contains(": \r\n"))
        link.disconnect()
        await server.close()
    }

    /// Whichever ends first, the time for its rest or that for the attempt.
    @Test(arguments: [900, 60_000])
    func refusalWhoseBodyDoesNotEndIsReportedWithItsBeginning(timeout: Int) async throws {
        let server = try await Server { _, _ in
            .raw("HTTP/1.1 401 Unauthorized\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        }
        let link = try TestLink.make(server.url()) { $0.socket.connectTimeout = .milliseconds(timeout) }
        let events = link.events
        link.connect()
        // On a machine that stalls, an attempt may end before the server has answered.
        let event = try await first(of: events, "the refusal") { event in
            if case .connection(.connectFailed(let error)) = event { error.code == .handshakeRefused } else { false }
        }
        guard case .connection(.connectFailed(let error)) = event else { return }
        let refusal = try #require(error.underlying as? WebSocketRefusal)
        #expect(refusal.status == 401)
        #expect(String(buffer: refusal.body) == "hello")
        link.disconnect()
        await link.waitUntilClosed()
        await server.close()
    }

    @Test(arguments: [401, 403, 404, 429, 503]) func refusalIsReportedInFullAndTriedAgain(status: Int) async throws {
        let server = try await Server { number, _ in
            guard number == 0 else { return .accept }
            return .raw(
                """
                HTTP/1.1 \(status) Not Now\r\nContent-Length: 9\r\nX-Reason: quota\r\nRetry-After: 0\r\n\r\nsome text
                """
            )
        }
        let link = try TestLink.make(server.url())
        let events = link.events
        link.connect()
        let event = try await first(of: events, "the refusal") { event in
            if case .connection(.connectFailed) = event { true } else { false }
        }
        guard case .connection(.connectFailed(let error)) = event else { return }
        #expect(error.code == .handshakeRefused)
        #expect(error.message.contains("\(status)"))
        let refusal = try #require(error.underlying as? WebSocketRefusal)
        #expect(refusal.status == status && refusal.reason == "Not Now")
        #expect(String(buffer: refusal.body) == "some text")
        #expect(refusal.headers.contains { $0.name == "X-Reason" && $0.value == "quota" })
        try await link.send(WebSocketMessage("hello"))
        try await server.wait("the message", of: 1) { $0.texts == ["hello"] }
        link.disconnect()
        await server.close()
    }

    @Test(arguments: [Proxy.Kind.http, .socks5]) func proxiesLeadToTheServer(kind: Proxy.Kind) async throws {
        let server = try await Server()
        let proxy = try await TestProxy(kind) {
            $0.hosts = ["chat.example": Endpoint(host: "127.0.0.1", port: server.port)]
        }
        let link = try TestLink.make("ws://chat.example:\(server.port)/chat") { $0.socket.proxy = proxy.proxy() }
        link.connect()
        try await link.send(WebSocketMessage("hello"))
        try await server.wait("the message") { $0.texts == ["hello"] }
        #expect(proxy.asked == ["chat.example:\(server.port)"])
        link.disconnect()
        await server.close()
    }

    @Test func certificateThatIsNotPinnedIsRefused() async throws {
        let (authority, certificate) = (try TestAuthority(), try TestCertificate(.server))
        let listener = try ServerListener(url: "wss://127.0.0.1:0/rpc", tls: ServerTLS(identity: certificate.identity))
        let server = SocketServer(configuration: .init(listeners: [listener]), router: Router())
        try server.webSocket("/chat", onMessage: { message, connection in connection.post(message) })
        try await server.start()
        let port = try #require(server.address).port
        let pins = (
            own: try PublicKeyPin(certificatePEM: certificate.certificatePEM),
            other: try PublicKeyPin(certificatePEM: TestCertificate(.serverDB).certificatePEM)
        )
        for isPinned in [true, false] {
            let link = try TestLink.make("wss://127.0.0.1:\(port)/chat") {
                var tls = ClientTLS()
                tls.trust = authority.trust
                tls.pins = [isPinned ? pins.own : pins.other]
                $0.socket.tls = tls
            }
            let events = link.events
            var messages = link.messages.makeAsyncIterator()
            link.connect()
            if isPinned {
                try await link.send(WebSocketMessage("hello"))
                #expect(await messages.next()?.text == "hello")
            } else {
                try await TestLink.event(events, "the refusal") { event in
                    guard case .connectFailed(let error) = event else { return false }
                    return error.code == .tlsFailed
                }
            }
            link.disconnect()
        }
        await server.shutdown(gracePeriod: .zero)
    }
}
