import HHSocket
import HHSocketRPC
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// The examples of `Docs/Testing.md`.
@Suite(.timeLimit(.minutes(5))) struct TestingGuideTests {
    private func connect(to server: MockServer) -> SocketClient {
        let client = SocketClient(configuration: .init(servers: [server.endpoint]))
        client.connect()
        return client
    }

    @Test func answersByTypeAndARecord() async throws {
        let server = try await MockServer()
        server.on(101, .answer("hello"))
        server.on(102, .echo)
        server.on(103, .status(.noPermission))
        server.on(104, .respond { .answer("\($0.string), on connection \($0.connection)") })

        let client = SocketClient(configuration: .init(servers: [server.endpoint]))
        client.connect()
        let response = try await client.data(for: SocketRequest(type: 101, body: "hi"))
        #expect(response.string == "hello")

        _ = try await client.data(for: SocketRequest(type: 101, body: "hi again"))
        let requests = try await server.received(2, ofType: 101)
        #expect(requests.map(\.string) == ["hi", "hi again"])
        #expect(
            try await client.data(for: SocketRequest(type: 104, body: "hi")).string == "hi, on connection 0"
        )
        await client.close()
        try await server.ended(connection: 0)
    }

    @Test func somethingGoesWrongOnce() async throws {
        let server = try await MockServer(.echo)
        server.once(101, .echo.cut(after: 10).then(.reset))
        let client = self.connect(to: server)

        let error = await #expect(throws: SocketError.self) {
            try await client.data(for: SocketRequest(type: 101, body: "lost on the way"))
        }
        #expect(error?.code == .connectionLost)
        #expect(error?.delivery == .sentUnknown)
    }

    @Test func actsAtAnyMoment() async throws {
        let server = try await MockServer(.echo)
        let client = self.connect(to: server)
        let pushes = client.pushes(ofType: 2001)
        _ = try await client.data(for: SocketRequest(type: 101))

        await server.perform(.push(2001, "news"))
        try await server.connection(0).perform(.ping())

        #expect(try await first(of: pushes, "the push").string == "news")
        try await server.received(1, ofType: FrameType.heartbeat)
    }

    @Test func anHourInNoTime() async throws {
        let clock = VirtualClock()
        let server = try await MockServer(.echo.delayed(by: .seconds(3_600)), clock: clock)
        let client = self.connect(to: server)
        let task = client.dataTask(with: SocketRequest(type: 101, body: "in an hour", timeout: .seconds(7_200)))
        task.resume()
        try await clock.waitForSleepers()
        clock.advance(by: .seconds(3_600))

        try await eventually("the answer") { task.state == .completed }
        #expect(task.response?.string == "in an hour")
    }
}
