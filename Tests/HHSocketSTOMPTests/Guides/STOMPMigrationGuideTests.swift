// SPDX-License-Identifier: Apache-2.0
import HHSocketSTOMP
import HHSocketTesting
import TestSupport
import Testing

final class Chat: Sendable {
    let client: STOMPClient

    init(url: String) throws {
        var configuration = try STOMPClient.Configuration(url: url)
        configuration.host = "/"
        configuration.credentials = { STOMPCredentials(login: "ann", passcode: "secret") }
        self.client = STOMPClient(configuration: configuration)
        self.client.connect()
    }

    func run() async throws {
        let messages = try self.client.subscribe(to: "/topic/chat")
        try await messages.waitUntilConfirmed()
        try await self.client.send("hello", to: "/topic/chat", receipt: true)
        for try await message in messages { print(message.text ?? "binary") }
    }
}

/// The examples of `Docs/MigratingToSTOMPClient.md` with this package, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct STOMPMigrationGuideTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        #expect(try DocumentationPage("Docs/MigratingToSTOMPClient.md").shortcomings() == [])
    }

    @Test func chat() async throws {
        var rules = MockBroker.Configuration()
        rules.logins = ["ann": "secret"]
        rules.virtualHosts = ["/"]
        let broker = try await MockBroker(configuration: rules, webSocket: "/ws")
        let chat = try Chat(url: broker.url)
        let running = Task { try await chat.run() }
        #expect(try await broker.received(1, .send)[0].frame.body == ByteBuffer(string: "hello"))
        running.cancel()
    }

    @Test func orders() async throws {
        let broker = try await MockBroker(webSocket: "/ws")
        try await broker.publish("order 7", to: "/queue/orders")
        let client = STOMPClient(configuration: try .init(url: broker.url))
        client.connect()
        let stored = Watched("")
        @Sendable func store(_ text: String) { stored.withLockedValue { $0 = text } }
        let reading = Task {
            let orders = try client.subscribe(to: "/queue/orders", ack: .clientIndividual)
            for try await order in orders {
                store(order.text ?? "")
                try? await order.ack()  // fails if its connection is gone: then it comes again
            }
        }
        try await broker.received(1, .ack)
        #expect(stored.withLockedValue { $0 } == "order 7")
        reading.cancel()
    }

    /// The names on the right side of the tables exist.
    @Test func tables() async throws {
        var configuration = try STOMPClient.Configuration(url: "wss://127.0.0.1:1/ws")
        configuration.connectHeaders = ["tenant": "acme"]
        configuration.socket.webSocket.headers = [(name: "Authorization", value: "Bearer x")]
        configuration.socket.connectTimeout = .seconds(5)
        configuration.socket.backoff.maximumRounds = 1
        configuration.socket.callbackQueue = .default
        configuration.versions = [.v1_1, .v1_2]
        let client = STOMPClient(configuration: configuration)
        #expect("\(client.state)" == "idle")
        let messages = try client.subscribe(to: "/queue/a", headers: ["id": "mine"])
        #expect(messages.id == "mine")
        try await messages.unsubscribe()
        try await client.disconnect()
    }
}
