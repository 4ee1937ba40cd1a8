import HHSocketRPC
import HHSocketTesting
import Testing

@Suite struct GreeterTests {
    @Test func theAnswerIsTheGreeting() async throws {
        let server = try await MockServer()
        server.on(101, .answer("hello, Ann"))
        let client = SocketClient(configuration: .init(servers: [server.endpoint]))
        client.connect()

        #expect(await Greeter(client: client).greeting(for: "Ann") == "hello, Ann")
        #expect(try await server.received(1, ofType: 101).map(\.string) == ["Ann"])
    }

    @Test func statusesAreReported() async throws {
        let server = try await MockServer()
        server.on(101, .status(.noPermission))
        let client = SocketClient(configuration: .init(servers: [server.endpoint]))
        client.connect()

        #expect(await Greeter(client: client).greeting(for: "Ann") == "you are not to be greeted")
    }
}
