// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import TestSupport
import Testing

@MainActor final class ChatScreen {
    private(set) var lines: [String] = []
    private(set) var banner: String?
    private let link: WebSocketLink

    init(url: String) throws {
        var configuration = try WebSocketLink.Configuration(url: url)
        configuration.subprotocols = ["chat.v2"]
        self.link = WebSocketLink(configuration: configuration)
    }

    func run() async throws {
        let events = self.link.events
        self.link.connect()
        let following = Task { await self.followConnection(events) }
        defer { following.cancel() }
        try await self.link.send(WebSocketMessage("hello"))
        for await message in self.link.messages {
            if let text = message.text { self.lines.append(text) }
        }
    }

    private func followConnection(_ events: AsyncStream<WebSocketLink.Event>) async {
        for await event in events {
            switch event {
            case .opened: self.banner = nil
            case .closed: self.banner = "offline"
            case .connection: break
            }
        }
    }
}

/// Our side of `Docs/MigratingFromStarscream.md`, word for word, and the names of its table.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StarscreamMigrationTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        #expect(try DocumentationPage("Docs/MigratingFromStarscream.md").shortcomings() == [])
    }

    @Test func screenShowsLinesAndABanner() async throws {
        let server = try await MockWebSocketServer(path: "/chat", subprotocols: ["chat.v2"])
        server.on("hello", .text("welcome"))
        let screen = try await ChatScreen(url: server.url)
        let running = Task { try await screen.run() }
        try await eventually("a line") { await screen.lines == ["welcome"] }
        #expect(await screen.banner == nil)
        try await server.refuseConnections()
        await server.perform(.disconnect)
        try await eventually("a banner") { await screen.banner == "offline" }
        try await server.acceptConnections()
        try await eventually("no banner") { await screen.banner == nil }
        running.cancel()
        try await running.value
    }

    @Test func table() async throws {
        let server = try await MockWebSocketServer(path: "/chat")
        var configuration = try WebSocketLink.Configuration(url: server.url)
        configuration.compression = WebSocketCompression()
        configuration.socket.connectTimeout = .seconds(5)
        configuration.socket.proxy = nil
        configuration.maximumWaitingMessages = 10
        configuration.socket.maximumQueuedBytes = 1 << 20
        let link = WebSocketLink(configuration: configuration)
        link.connect()
        let sent = Watched(false)
        link.send(WebSocketMessage("by a handler")) { result in
            if case .success = result { sent.withLockedValue { $0 = true } }
        }
        try await eventually("the end of sending") { sent.withLockedValue { $0 } }
        link.disconnect()
    }
}
