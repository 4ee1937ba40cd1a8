// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import InMemoryLogging
import Logging
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// The heartbeat over real connections; its rules are tested in virtual time.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct HeartbeatSocketTests {
    private func socket(
        _ server: MockServer,
        _ heartbeat: HeartbeatPolicy,
        _ format: WireFormat = .standard,
        change: (inout SocketConfiguration) -> Void = { _ in }
    ) -> Socket {
        var configuration = SocketConfiguration(servers: [server.endpoint])
        configuration.backoff.base = .milliseconds(10)
        configuration.heartbeat = heartbeat
        configuration.wireFormat = format
        change(&configuration)
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

    /// A policy whose payloads `make` creates from 1, 2 and so on.
    private func counting(_ make: @escaping @Sendable (Int) throws -> ByteBuffer) -> HeartbeatPolicy {
        let count = NIOLockedValueBox(0)
        var policy = HeartbeatPolicy(interval: .milliseconds(20), payload: ByteBuffer(string: "not this"))
        policy.makePayload = {
            let number = count.withLockedValue { count in
                count += 1
                return count
            }
            return try make(number)
        }
        return policy
    }

    @Test func payloadIsMadeForEachPing() async throws {
        let server = try await MockServer(.echo)
        let socket = self.socket(server, self.counting { ByteBuffer(string: "ping \($0)") })
        socket.connect()
        let pings = try await server.received(3, ofType: FrameType.heartbeat)
        #expect(pings.prefix(3).map(\.string) == ["ping 1", "ping 2", "ping 3"])
        #expect(server.acceptedCount == 1)
    }

    @Test func pingsThatCannotBeMadeAreSkippedWithAWarning() async throws {
        struct NoClock: Error {}
        let server = try await MockServer(.echo)
        let handler = InMemoryLogHandler()
        let policy = self.counting { number in
            if number == 1 { throw NoClock() }
            return number == 2 ? ByteBuffer(repeating: 7, count: 65) : ByteBuffer(string: "ping \(number)")
        }
        let socket = self.socket(server, policy) {
            $0.maximumPayloadLength = 64
            $0.logger = Logger(label: "test", factory: { _ in handler })
        }
        socket.connect()
        #expect(try await server.received(1, ofType: FrameType.heartbeat).first?.string == "ping 3")
        #expect(server.acceptedCount == 1)
        let warnings = handler.entries.filter { $0.level == .warning }
        #expect(warnings.map { "\($0.message)" } == Array(repeating: "a heartbeat could not be created", count: 2))
        #expect(warnings.map { $0.metadata["error"].map { "\($0)" } } == ["NoClock", "SocketError"])
    }

    @Test func serverThatAnswersNoPingIsLeft() async throws {
        let server = try await MockServer(.echo)
        server.on(FrameType.heartbeat, .drop)
        let policy = HeartbeatPolicy(interval: .milliseconds(20), replyTimeout: .milliseconds(20), mode: .ping)
        let socket = self.socket(server, policy)
        let events = socket.events
        socket.connect()
        _ = try await first(of: events, "the loss", where: self.isLoss)
        #expect(server.received.allSatisfy { $0.frame.type == FrameType.heartbeat })
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
        server.onOpen(.ping(serial: 5).delayed(by: .milliseconds(20)).times(5))
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
