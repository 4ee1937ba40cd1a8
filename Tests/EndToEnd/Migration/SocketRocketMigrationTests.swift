// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import TestSupport
import Testing

func chat(url: String, show: (String) async -> Void) async throws {
    var configuration = try WebSocketLink.Configuration(url: url)
    configuration.subprotocols = ["chat.v2"]
    let link = WebSocketLink(configuration: configuration)
    link.connect()
    try await link.send(WebSocketMessage("hello"))
    for await message in link.messages {
        if let text = message.text { await show(text) }
    }
}

/// Our side of `Docs/MigratingFromSocketRocket.md`, word for word, and the names of its table.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct SocketRocketMigrationTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        #expect(try DocumentationPage("Docs/MigratingFromSocketRocket.md").shortcomings() == [])
    }

    @Test func messagesAreSentAndShown() async throws {
        let server = try await MockWebSocketServer(path: "/chat", subprotocols: ["chat.v2"])
        server.on("hello", .text("welcome"))
        let shown = Watched("")
        let running = Task { try await chat(url: server.url) { text in shown.withLockedValue { $0 = text } } }
        try await eventually("the answer") { shown.withLockedValue { $0 } == "welcome" }
        #expect(try await server.opening(0).subprotocols == ["chat.v2"])
        running.cancel()
        try await running.value
    }

    @Test func table() async throws {
        let server = try await MockWebSocketServer(path: "/chat")
        var configuration = try WebSocketLink.Configuration(url: server.url)
        configuration.socket.webSocket.headers = [(name: "Cookie", value: "a=b")]
        configuration.socket.webSocket.prepare = { $0 }
        configuration.socket.tls?.pins = []
        configuration.socket.callbackQueue = .default
        configuration.socket.heartbeat = HeartbeatPolicy(interval: .seconds(60))
        configuration.reconnects = WebSocketLink.Configuration.reconnectsByDefault
        let link = WebSocketLink(configuration: configuration)
        link.connect()
        try await link.send(WebSocketMessage([1, 2, 3] as [UInt8]))
        #expect(try await link.ping() > .zero)
        #expect(try await server.opening(0).header("Cookie") == "a=b")
        try link.disconnect(code: 4000, reason: "bye")
        #expect(try await server.closeFrame().content.closeCode == 4000)
        #expect([1002, 1003, 1007, 1010, 3500, 4999].allSatisfy { !configuration.reconnects($0) })
        #expect([1000, 1001, 1006, 1011, 1012, 3000, 4000].allSatisfy { configuration.reconnects($0) })
        #expect(WebSocketLink.Configuration(socket: .init(servers: [])).compression == nil)
        link.disconnect()
    }
}
