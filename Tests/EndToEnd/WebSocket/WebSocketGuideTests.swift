// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketServer
import TestSupport
import Testing

/// The examples of `WebSocket.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct WebSocketGuideTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        #expect(try DocumentationPage(guide: "WebSocket").shortcomings() == [])
    }

    private func token() async throws -> String { "secret" }

    @Test func clientHasAURL() throws {
        let server = try Endpoint(url: "wss://example.com/rpc")
        let client = SocketClient(configuration: .init(servers: [server]))
        client.connect()
        client.disconnect()
        #expect("\(server)" == "wss://example.com:443/rpc")
    }

    @Test func serverSharesItsPortAndAuthenticates() async throws {
        let router = Router.echo
        var listener = try ServerListener(url: "ws://127.0.0.1:0/rpc")
        listener.webSocket?.origins = .list(["https://example.com"])
        listener.webSocket?.authenticate = { request in
            request.header("Authorization") == "Bearer secret" ? .allow() : .refuse(status: 401)
        }
        let guarded = SocketServer(configuration: .init(listeners: [listener]), router: router)
        do {
            let listener = try ServerListener(url: "tcp+ws://127.0.0.1:0/rpc")
            let server = SocketServer(configuration: .init(listeners: [listener]), router: router)
            try await server.start()
            await server.shutdown(gracePeriod: .zero)
        }
        try await guarded.start()
        var configuration = SocketClient.Configuration(servers: [try #require(guarded.address)])
        configuration.socket.webSocket.prepare = { request in
            // Not for a server to which another one has redirected.
            guard !request.isRedirected else { return request }
            var request = request
            request.headers.append((name: "Authorization", value: "Bearer \(try await token())"))
            return request
        }
        configuration.waitsForConnectivity = true
        let client = SocketClient(configuration: configuration)
        client.connect()
        #expect(try await client.data(for: SocketRequest(type: 101, body: "x")).string == "x")
        await client.close()
        await guarded.shutdown(gracePeriod: .zero)
    }

    @Test func linkIsConfigured() async throws {
        var configuration = try WebSocketLink.Configuration(url: "wss://example.com/chat")
        // Random waits of up to 2, 4 … 1,024 s, then no more attempts until the app asks for one.
        configuration.socket.backoff = Backoff(base: .seconds(2), cap: .seconds(1024), maximumRounds: 10)
        // A ping every 10 s.
        configuration.socket.heartbeat = HeartbeatPolicy(interval: .seconds(10))
        // The text "heart" every three minutes, for a server that answers it with anything.
        configuration.socket.heartbeat = HeartbeatPolicy(interval: .seconds(180))
        configuration.heartbeatMessage = { WebSocketMessage("heart") }
        #expect(try configuration.heartbeatMessage?().text == "heart")
        #expect(configuration.reconnects(1_000) && !configuration.reconnects(1_008))
    }

    @Test func messagesAreEchoed() async throws {
        var listener = ServerListener()
        listener.webSocket = WebSocketListening(path: nil)
        let server = SocketServer(configuration: .init(listeners: [listener]), router: Router())
        try server.webSocket("/chat") { connection in
            for await message in connection.messages {
                try await connection.send(message)
            }
        }
        try await server.start()
        let address = try #require(server.address)
        let link = WebSocketLink(configuration: try .init(url: "ws://127.0.0.1:\(address.port)/chat"))
        link.connect()
        try await link.send(WebSocketMessage("hello"))
        let echo = try await first(of: link.messages, "the echo")
        #expect(echo.text == "hello")
        link.disconnect()
        await server.shutdown(gracePeriod: .zero)
    }

    /// Compiled, and not run: there is no such server.
    private func page() async throws {
        var configuration = try WebSocketLink.Configuration(url: "wss://example.com/chat")
        configuration.subprotocols = ["chat.v2"]
        let link = WebSocketLink(configuration: configuration)
        link.connect()
        try await link.send(WebSocketMessage("hello"))
        for await message in link.messages {
            print(message.text ?? "\(message.payload.readableBytes) bytes")
        }
    }
}
