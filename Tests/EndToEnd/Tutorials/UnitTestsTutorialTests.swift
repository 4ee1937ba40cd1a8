// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketTesting
import TestSupport
import Testing

struct Greeter {
    let client: SocketClient
    var timeout = Duration.seconds(3)

    func greeting(for name: String) async -> String {
        let request = SocketRequest(type: 101, body: ByteBuffer(string: name), timeout: self.timeout)
        do throws(SocketError) {
            return try await self.client.data(for: request).string
        } catch {
            return error.code == .noPermission ? "you are not to be greeted" : "no greeting today"
        }
    }
}

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

/// The last steps of the tutorial `Unit-Tests`, which are the code above, word for word.
@Suite struct UnitTestsTutorialTests {
    @Test(arguments: ["unit-tests-greeter.swift", "unit-tests-3.swift"])
    func theStepIsInThisFile(name: String) throws {
        #expect(try DocumentationPage(tutorialCode: "UnitTests/\(name)").shortcomings() == [])
    }
}
