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

    @Test(arguments: [
        MockServer.Reaction.drop, .echo.late(), .echo.cut(after: 10).then(.reset), .echo.corrupted(), .disconnect,
    ])
    func thereIsAnAnswerWhateverTheServerDoes(reaction: MockServer.Reaction) async throws {
        let server = try await MockServer(reaction)
        let client = SocketClient(configuration: .init(servers: [server.endpoint]))
        client.connect()

        let greeter = Greeter(client: client, timeout: .milliseconds(300))
        #expect(await greeter.greeting(for: "Ann") == "no greeting today")
    }
}
