import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// The heartbeat over real connections; its rules are tested in virtual time.
@Suite(.tags(.io)) struct HeartbeatSocketTests {
    private func socket(_ server: MockServer, _ heartbeat: HeartbeatPolicy, _ format: WireFormat = .standard) -> Socket
    {
        var configuration = SocketConfiguration(servers: [server.endpoint])
        configuration.backoff.base = .milliseconds(10)
        configuration.heartbeat = heartbeat
        configuration.wireFormat = format
        return Socket(configuration: configuration)
    }

    private func isLoss(_ event: SocketEvent) -> Bool {
        if case .disconnected(let error) = event { error.code == .connectionLost } else { false }
    }

    @Test func pingsCarryTheirPayload() async throws {
        let server = try await MockServer(.echo)
        let policy = HeartbeatPolicy(interval: .milliseconds(20), payload: ByteBuffer(string: "alive"))
        let socket = self.socket(server, policy)
        socket.connect()
        let pings = try await server.received(2, ofType: FrameType.heartbeat)
        #expect(pings.allSatisfy { $0.frame.payload == ByteBuffer(string: "alive") && $0.frame.serial == 0 })
    }

    @Test func serverThatShouldPingAndDoesNotIsLeftWithoutAPingOfOurs() async throws {
        let server = try await MockServer(.echo)
        let policy = HeartbeatPolicy(
            interval: .milliseconds(20),
            replyTimeout: .milliseconds(20),
            mode: .expectPings
        )
        let socket = self.socket(server, policy)
        let events = socket.events
        socket.connect()
        _ = try await first(of: events, "the loss", where: self.isLoss)
        #expect(server.received.isEmpty)
    }

    @Test func formatInWhichOnlyServersPingIsHeldToThatByDefault() async throws {
        let format = try WireFormat.tgcd(sessionIDLength: 4)
        let server = try await MockServer(.echo, format: format)
        let policy = HeartbeatPolicy(interval: .milliseconds(20), replyTimeout: .milliseconds(20))
        let socket = self.socket(server, policy, format)
        let events = socket.events
        socket.connect()
        _ = try await first(of: events, "the loss", where: self.isLoss)
        #expect(server.received.isEmpty)
    }

    @Test func serverWhosePingsWeExpectIsAnsweredAndKept() async throws {
        let server = try await MockServer(.echo)
        server.onConnect(.ping(serial: 5).delayed(by: .milliseconds(20)).times(5))
        let policy = HeartbeatPolicy(
            interval: .milliseconds(20),
            replyTimeout: .seconds(30),
            mode: .expectPings
        )
        let socket = self.socket(server, policy)
        socket.connect()
        let answers = try await server.received(5)
        #expect(answers.allSatisfy { $0.frame == Frame(type: FrameType.heartbeat, serial: 5) && $0.connection == 0 })
    }
}
