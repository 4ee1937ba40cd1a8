// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import InMemoryLogging
import Logging
import MetricsTestKit
import NIOCore
import TestSupport
import Testing

/// The log and the metrics of a socket over real TCP.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ObservabilityTests {
    @Test func logAndMetricsReportALoss() async throws {
        let server = try await MockServer(.echo)
        server.on(17, .close)
        let metrics = TestMetrics()
        let handler = InMemoryLogHandler()
        var configuration = SocketConfiguration(servers: [server.endpoint])
        configuration.backoff.base = .milliseconds(10)
        configuration.heartbeat = HeartbeatPolicy(interval: .milliseconds(20), replyTimeout: .seconds(60))
        configuration.metricsFactory = metrics
        configuration.logger = Logger(label: "test", factory: { _ in handler })
        configuration.logger?.logLevel = .trace
        let socket = Socket(configuration: configuration)
        let events = socket.events
        socket.connect()
        _ = try await first(of: events, "the connection") { if case .connected = $0 { true } else { false } }
        let secret = "a secret that belongs into no log"
        try await socket.send(Frame(type: 16, serial: 50, payload: ByteBuffer(string: secret)))
        try await eventually("a heartbeat's answer") {
            metrics.timers(label: "hhsocket.heartbeat_round_trip").contains { !$0.values.isEmpty }
        }
        try await eventually("the echo") { metrics.counterTotal(label: "hhsocket.frames_received") >= 2 }
        try await socket.send(Frame(type: 17, serial: 51, payload: ByteBuffer(string: secret)))
        _ = try await first(of: events, "the next connection") { if case .connected = $0 { true } else { false } }
        socket.disconnect()
        try await eventually("the end") { if case .closed = socket.state { true } else { false } }
        try await eventually("the last line") { handler.entries.last?.message == "closed by the user" }

        #expect(metrics.counterTotal(label: "hhsocket.connects") == 2)
        #expect(metrics.counterTotal(label: "hhsocket.disconnects") == 1)
        #expect(
            metrics.counterTotal(label: "hhsocket.reconnects", dimensions: [("cause", "connectionLost")]) == 1
        )
        #expect(metrics.timers(label: "hhsocket.ready_time").flatMap(\.values).count == 2)
        // Two frames with a payload, and pings.
        #expect(metrics.counterTotal(label: "hhsocket.frames_sent") >= 3)
        let payloads = 2 * Int64(16 + secret.utf8.count)
        #expect(metrics.counterTotal(label: "hhsocket.bytes_sent") >= payloads + 16)
        // The echo and the answer to a ping: 16 bytes of header, 4 of checksum each.
        #expect(metrics.counterTotal(label: "hhsocket.bytes_received") >= 40 + Int64(secret.utf8.count))

        let entries = handler.entries
        #expect(entries.contains { $0.message == "connection lost" })
        #expect(entries.contains { $0.message == "connected" && $0.metadata["attempt"] == "1" })
        let servers = entries.compactMap { $0.metadata["server"] }
        #expect(!servers.isEmpty)
        #expect(servers.allSatisfy { $0 == "\(server.endpoint)" })
        #expect(!entries.contains { "\($0.message) \($0.metadata)".contains(secret) })
    }

    @Test func everyByteIsCountedInBothDirections() async throws {
        let server = try await MockServer(.echo)
        let metrics = TestMetrics()
        var configuration = SocketConfiguration(servers: [server.endpoint])
        configuration.heartbeat = nil
        configuration.metricsFactory = metrics
        let socket = Socket(configuration: configuration)
        let events = socket.events
        socket.connect()
        _ = try await first(of: events, "the connection") { if case .connected = $0 { true } else { false } }
        // Written in one piece, gathered, in slices, and empty.
        let lengths = [10, 60 << 10, 1 << 20, 0]
        for (index, length) in lengths.enumerated() {
            let payload = ByteBuffer(repeating: 7, count: length)
            try await socket.send(Frame(type: 16, serial: UInt32(50 + index), payload: payload))
        }
        let sum = Int64(lengths.reduce(0, +))
        try await eventually("all echoes") { metrics.counterTotal(label: "hhsocket.frames_received") == 4 }
        #expect(metrics.counterTotal(label: "hhsocket.bytes_received") == sum + 4 * 20)
        try await eventually("all requests") { metrics.counterTotal(label: "hhsocket.frames_sent") == 4 }
        #expect(metrics.counterTotal(label: "hhsocket.bytes_sent") == sum + 4 * 16)
        try await eventually("an empty queue") {
            metrics.meters(label: "hhsocket.queued_bytes").allSatisfy { ($0.lastValue ?? 0) == 0 }
        }
    }
}
