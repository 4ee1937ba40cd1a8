// SPDX-License-Identifier: Apache-2.0
import Metrics
import MetricsTestKit
import NIOCore
import Testing

@testable import HHSocket

@Suite struct ConnectionMetricsTests {
    private let a = Endpoint(host: "a", port: 1)
    private let b = Endpoint(host: "b", port: 2)
    private let test = TestMetrics()

    private func error(_ code: SocketError.Code) -> SocketError { SocketError(code, message: "for a test") }

    private func total(_ label: String, cause: String? = nil) -> Int64 {
        self.test.counterTotal(label: label, dimensions: cause.map { [("cause", $0)] } ?? [])
    }

    @Test func lifeOfAConnectionIsCountedWithItsCauses() throws {
        let metrics = ConnectionMetrics(factory: self.test)
        var now = NIODeadline.uptimeNanoseconds(1_000)
        func happen(_ events: SocketEvent..., after time: TimeAmount = .zero) {
            now = now + time
            for event in events { metrics.happened(event, now: now) }
        }
        happen(.connecting(self.a, attempt: 1), .connectFailed(self.error(.connectionRefused)))
        happen(.waiting(delay: .seconds(1), reason: self.error(.connectionRefused)))
        happen(.connecting(self.b, attempt: 2), .connectFailed(self.error(.connectTimeout)))
        happen(.connecting(self.b, attempt: 3), .handshaking(self.b), .connected(self.b))
        #expect(self.total("hhsocket.connects") == 1)
        #expect(self.total("hhsocket.connect_failures", cause: "connectionRefused") == 1)
        #expect(self.total("hhsocket.connect_failures", cause: "connectTimeout") == 1)
        // The first connection is no reconnect.
        #expect(self.test.counters(label: "hhsocket.reconnects").isEmpty)

        happen(.disconnected(self.error(.connectionLost)), after: .seconds(3))
        happen(.connecting(self.b, attempt: 1), .connectFailed(self.error(.connectionRefused)))
        happen(.connected(self.b), after: .seconds(1))
        happen(.switched(from: self.b, to: self.a), after: .seconds(5))
        happen(.goAway(self.a, reason: "restart", retryAfter: .seconds(1)))
        #expect(self.total("hhsocket.go_aways") == 1)
        happen(.switchFailed(self.error(.connectTimeout)))
        happen(.disconnected(self.error(.protocolViolation)), after: .seconds(7))
        happen(.connected(self.a))
        happen(.closed, after: .seconds(11))
        happen(.connected(self.a))
        #expect(self.total("hhsocket.connects") == 5)
        #expect(self.total("hhsocket.switches") == 1)
        #expect(self.total("hhsocket.connect_failures", cause: "connectionRefused") == 2)
        #expect(self.total("hhsocket.connect_failures", cause: "connectTimeout") == 1)
        #expect(self.total("hhsocket.disconnects", cause: "connectionLost") == 1)
        #expect(self.total("hhsocket.disconnects", cause: "protocolViolation") == 1)
        // A connection after the user's close does not count.
        #expect(self.total("hhsocket.reconnects", cause: "connectionLost") == 1)
        #expect(self.total("hhsocket.reconnects", cause: "protocolViolation") == 1)
        #expect(self.test.counters(label: "hhsocket.reconnects").count == 2)
        let ready = try self.test.expectTimer("hhsocket.ready_time")
        #expect(ready.values == [3, 5, 7, 11].map { $0 * 1_000_000_000 })
    }

    @Test func eventsThatEndNothingEndNothing() {
        let metrics = ConnectionMetrics(factory: self.test)
        metrics.happened(.closed, now: .now())
        metrics.happened(.disconnected(self.error(.connectionLost)), now: .now())
        #expect(self.test.timers(label: "hhsocket.ready_time").allSatisfy { $0.values.isEmpty })
    }

    @Test func trafficIsHandedOverOnceForManyFrames() throws {
        let metrics = ConnectionMetrics(factory: self.test)
        var sent = Traffic()
        sent.bytesSent = 300
        sent.framesSent = 3
        metrics.take(sent)
        metrics.take(Traffic())
        var received = Traffic()
        received.bytesReceived = 50
        metrics.take(received)
        received.framesReceived = 1
        metrics.take(received)
        #expect(try self.test.expectCounter("hhsocket.bytes_sent").values == [300])
        #expect(try self.test.expectCounter("hhsocket.frames_sent").values == [3])
        #expect(try self.test.expectCounter("hhsocket.bytes_received").values == [50, 50])
        #expect(self.total("hhsocket.frames_received") == 1)
    }

    @Test func queuesOfSeveralSocketsAddUp() throws {
        let one = ConnectionMetrics(factory: self.test)
        let other = ConnectionMetrics(factory: self.test)
        one.queued(bytes: 100)
        other.queued(bytes: 50)
        one.queued(bytes: 100)
        let meter = try self.test.expectMeter("hhsocket.queued_bytes")
        #expect(meter.lastValue == 150)
        one.queued(bytes: 10)
        #expect(meter.lastValue == 60)
        one.queued(bytes: 0)
        other.queued(bytes: 0)
        #expect(meter.lastValue == 0)
    }

    @Test func heartbeatsAreTimed() throws {
        let metrics = ConnectionMetrics(factory: self.test)
        metrics.heartbeatWasAnswered(after: .milliseconds(12))
        #expect(try self.test.expectTimer("hhsocket.heartbeat_round_trip").values == [12_000_000])
    }
}
