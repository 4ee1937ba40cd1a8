// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

@testable import HHSocketRPC

/// The calls that need no flight, and those that get one, in virtual time.
@Suite struct CallFlightTests {
    private let connection: SimulatedConnection
    private let client: ClientHost

    init() {
        (self.connection, self.client) = SimulatedConnection.make(SocketClient.Configuration(servers: []))
        self.connection.beginConnecting()
        self.connection.becomeReady()
    }

    private func start(_ body: String) -> SocketTask {
        let request = SocketRequest(type: 101, body: body, timeout: .seconds(60))
        let task = SocketTask(identifier: 1, request: request, engine: self.client.engine, completion: .nobody)
        task.resume()
        self.connection.runSubmissions()
        return task
    }

    /// The phase of the only call, and whether it has a flight.
    private var call: (phase: ClientCalls.Phase?, hasFlight: Bool?) {
        guard let key = self.client.engine.hot.table.keys.first else { return (nil, nil) }
        let hasFlight = self.client.engine.hot.table.withCall(key) { call, _ in call.existingFlight != nil }
        return (self.client.engine.hot.table.phase(of: key), hasFlight)
    }

    private func pass(_ seconds: Int64) {
        self.connection.advance(to: self.connection.time + .seconds(seconds))
    }

    private func answer(_ body: String) {
        let frame = Frame(
            type: 101,
            serial: FrameSerial.firstRequest,
            status: .ok,
            payload: ByteBuffer(string: body)
        )
        self.connection.deliver(frame, isCorrupt: false, on: ConnectionID(number: 1))
    }

    @Test func requestThatIsSentAtOnceHasNoFlightAndItsMetricsAreKept() throws {
        let task = self.start("sent")
        #expect(self.call.phase == .sent && self.call.hasFlight == false)
        #expect(task.countOfBytesSent == 4)
        self.pass(2)
        self.answer("answer")
        let metrics = try #require(task.metrics)
        #expect(metrics.attempts == 1 && metrics.bytesSent == 4 && metrics.bytesReceived == 6)
        #expect(metrics.duration == .seconds(2))
        #expect(metrics.sent == metrics.queued && metrics.server != nil)
        self.connection.invalidate()
    }

    @Test func requestThatWaitsUntilTheServerReadsHasNoFlight() throws {
        self.connection.stopReading()
        let task = self.start("waits")
        #expect(self.call.phase == .queued && self.call.hasFlight == false)
        #expect(task.countOfBytesSent == 0)
        self.pass(1)
        self.connection.read()
        #expect(self.call.phase == .sent && self.call.hasFlight == false)
        #expect(task.countOfBytesSent == 5)
        self.pass(1)
        self.answer("answer")
        let metrics = try #require(task.metrics)
        #expect(metrics.attempts == 1 && metrics.bytesSent == 5 && metrics.bytesReceived == 6)
        #expect(metrics.duration == .seconds(2))
        #expect(abs(try #require(metrics.sent).timeIntervalSince(metrics.queued) - 1) < 0.001)
        self.connection.invalidate()
    }

    @Test func cancelledRequestThatWaitsWasNotSent() throws {
        self.connection.stopReading()
        let task = self.start("waits")
        task.cancel()
        self.connection.runSubmissions()
        let error = try #require(task.error)
        #expect(error.code == .cancelled && error.delivery == .notSent && error.serial == FrameSerial.firstRequest)
        let metrics = try #require(task.metrics)
        #expect(metrics.sent == nil && metrics.bytesSent == 0 && metrics.attempts == 1)
        self.connection.invalidate()
    }

    @Test func lostConnectionMakesAFlightThatKnowsWhatWasSent() throws {
        let task = self.start("sent")
        self.pass(1)
        self.connection.lose(SocketError(.connectionLost, message: "lost"))
        let error = try #require(task.error)
        #expect(error.code == .connectionLost && error.delivery == .sentUnknown)
        let metrics = try #require(task.metrics)
        #expect(metrics.attempts == 1 && metrics.bytesSent == 4 && metrics.sent == metrics.queued)
        #expect(metrics.duration == .seconds(1) && metrics.server != nil)
        self.connection.invalidate()
    }
}
