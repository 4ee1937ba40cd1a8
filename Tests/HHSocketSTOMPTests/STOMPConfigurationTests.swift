// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketSTOMP
import TestSupport
import Testing

/// URLs of brokers, and settings that cannot work.
@Suite struct STOMPConfigurationTests {
    @Test(
        arguments: [
            ("stomp://broker.example", "broker.example:61613", false),
            ("stomp://broker.example/", "broker.example:61613", false),
            ("stomp://broker.example:1234", "broker.example:1234", false),
            ("stomps://broker.example", "broker.example:61614", true),
            ("stomps://[::1]", "[::1]:61614", true), ("stomp://[::1]:99", "[::1]:99", false),
            ("stomp://127.0.0.1", "127.0.0.1:61613", false),
            ("ws://broker.example:15674/ws", "ws://broker.example:15674/ws", false),
            ("wss://broker.example/ws", "wss://broker.example:443/ws", false),
        ]
    )
    func urlIsRead(url: String, server: String, isSecure: Bool) throws {
        let configuration = try STOMPClient.Configuration(url: url)
        #expect(configuration.socket.servers.map(\.description) == [server])
        #expect((configuration.socket.tls != nil) == isSecure)
    }

    @Test(
        arguments: [
            "broker.example", "http://broker.example", "stomp://", "stomp://a:0", "stomp://a:70000", "stomp://a:b",
            "stomp://a/b", "stomp://unix:/tmp/s", "stomp://ann:secret@a", "ws://", "stomp:a",
        ]
    )
    func otherTextIsRefusedAndNotQuoted(url: String) throws {
        let error = try #require(throws: SocketError.self) { _ = try STOMPClient.Configuration(url: url) }
        #expect(error.code == .invalidArgument)
        #expect(!error.message.contains("secret"))
    }

    @Test func credentialsDoNotShowThePasscode() {
        let credentials = STOMPCredentials(login: "ann", passcode: "secret")
        #expect("\(credentials)" == "STOMPCredentials(login: ann)")
        #expect(!String(reflecting: credentials).contains("secret"))
        var text = ""
        dump(credentials, to: &text)
        #expect(!text.contains("secret"))
    }

    @Test func headersThatNoVersionCarriesAreRefusedAtOnce() async throws {
        let client = STOMPClient(configuration: .init(servers: []))
        let error = #expect(throws: SocketError.self) { _ = try client.subscribe(to: "/queue/\0") }
        #expect(error?.code == .invalidArgument)
        let reserved = #expect(throws: SocketError.self) {
            _ = try client.subscribe(to: "/queue/a", headers: ["receipt": "1"])
        }
        #expect(reserved?.message.contains("receipt") == true)
        #expect(throws: SocketError.self) { _ = try client.subscribe(to: "/queue/a", window: 0) }
        let sent = await #expect(throws: SocketError.self) {
            try await client.send("x", to: "/queue/a", headers: ["": "y"])
        }
        #expect(sent?.code == .invalidArgument)
    }

    @Test func withoutAVersionNothingIsAttempted() async throws {
        var configuration = STOMPClient.Configuration(servers: [Endpoint(host: "127.0.0.1", port: 1)])
        configuration.versions = []
        let client = STOMPClient(configuration: configuration)
        let events = client.events
        client.connect()
        let event = try await first(of: events, "the end") {
            if case .connection(.connectFailed) = $0 { true } else { false }
        }
        guard case .connection(.connectFailed(let error)) = event else { return }
        #expect(error.code == .invalidArgument)
    }
}
