// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import InMemoryLogging
import InMemoryTracing
import Logging
import MetricsTestKit
import NIOCore
import TestSupport
import Testing
import Tracing

@testable import HHSocketRPC

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct CallObservabilityTests {
    private let secret = "the secret payload"

    @Test func callsAreCountedByTypeAndOutcome() async throws {
        let metrics = TestMetrics()
        let server = try await MockServer(.echo)
        server.on(102, .status(.noPermission))
        server.on(103, .answer("", status: Status(rawValue: 418)))
        server.on(104, .echo.twice())
        server.once(105, .status(.overloaded))
        let client = SocketClient.connecting(to: server.endpoint) { $0.socket.metricsFactory = metrics }
        for type: UInt32 in [101, 101, 102, 103, 104] { _ = try? await client.data(for: SocketRequest(type: type)) }
        var request = SocketRequest(type: 105)
        request.retryPolicy = RetryPolicy(maximumAttempts: 2, backoff: Backoff(base: .milliseconds(1)))
        _ = try await client.data(for: request)
        func calls(_ type: String, _ outcome: String) throws -> Int64 {
            try metrics.expectCounter("hhsocket.calls", [("type", type), ("outcome", outcome)]).totalValue
        }
        #expect(try calls("101", "ok") == 2)
        #expect(try calls("102", "noPermission") == 1)
        #expect(try calls("103", "server") == 1)
        #expect(try calls("105", "ok") == 1)
        #expect(try metrics.expectCounter("hhsocket.retries", [("cause", "overloaded")]).totalValue == 1)
        #expect(try metrics.expectTimer("hhsocket.call_time", [("type", "101")]).values.count == 2)
        try await eventually("the duplicate") { client.statistics.duplicateResponses == 1 }
        #expect(try metrics.expectCounter("hhsocket.duplicate_responses").totalValue == 1)
        #expect(try metrics.expectCounter("hhsocket.late_responses").totalValue == 0)
    }

    @Test func callsInFlightAndWaitingAreMeasured() async throws {
        let metrics = TestMetrics()
        let server = try await MockServer(.drop)
        let gate = Gate()
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.socket.metricsFactory = metrics
            $0.socket.gate = HandshakeGate { _ in try await gate.wait() }
        }
        try await server.connection(0)
        let tasks = (0..<3).map { _ in client.dataTask(with: SocketRequest(type: 101)) }
        for task in tasks { task.resume() }
        @Sendable func meter(_ label: String) -> Double? { try? metrics.expectMeter(label).lastValue }
        try await eventually("three wait") { meter("hhsocket.calls_waiting") == 3 }
        gate.open()
        try await eventually("three in flight") { meter("hhsocket.calls_in_flight") == 3 }
        #expect(meter("hhsocket.calls_waiting") == 0)
        client.cancelAllTasks()
        try await eventually("none in flight") { meter("hhsocket.calls_in_flight") == 0 }
    }

    @Test func typesThatCouldBeMadeUpWithoutEndAreCountedTogether() throws {
        let kit = TestMetrics()
        var metrics = try #require(CallMetrics(factory: kit))
        for type in 0..<UInt32(CallMetrics.maximumTypes + 500) { metrics.completed(type, nil, after: .nanoseconds(1)) }
        metrics.completed(3, nil, after: .nanoseconds(1))
        #expect(kit.timers.count == CallMetrics.maximumTypes + 1)
        let other = try kit.expectCounter("hhsocket.calls", [("type", "other"), ("outcome", "ok")])
        #expect(other.totalValue == 500)
        #expect(try kit.expectCounter("hhsocket.calls", [("type", "3"), ("outcome", "ok")]).totalValue == 2)
    }

    @Test func logSaysWhatFailedAndNeverThePayload() async throws {
        let handler = InMemoryLogHandler()
        var logger = Logger(label: "test") { _ in handler }
        logger.logLevel = .trace
        let server = try await MockServer(.echo)
        server.on(102, .answer("the secret answer", status: .noPermission))
        server.once(103, .status(.overloaded))
        let client = SocketClient.connecting(to: server.endpoint) { [logger] in $0.socket.logger = logger }
        _ = try await client.data(for: SocketRequest(type: 101, body: self.secret))
        _ = try? await client.data(for: SocketRequest(type: 102, body: self.secret))
        var request = SocketRequest(type: 103, body: self.secret)
        request.retryPolicy = RetryPolicy(maximumAttempts: 2, backoff: Backoff(base: .milliseconds(1)))
        _ = try await client.data(for: request)
        let entries = handler.entries
        let failure = try #require(entries.first { $0.message == "call failed" })
        #expect(failure.level == .debug)
        #expect(failure.metadata["type"] == "102")
        #expect(failure.metadata["serial"] == "51")
        #expect(failure.metadata["cause"] == "noPermission")
        #expect(failure.metadata["server"] == "\(server.endpoint)")
        let answered = try #require(entries.first { $0.message == "call answered" })
        #expect(answered.level == .trace)
        #expect(answered.metadata["serial"] == "50")
        #expect(entries.contains { $0.message == "call will be retried" && $0.metadata["cause"] == "overloaded" })
        for entry in entries { #expect(!"\(entry.message) \(entry.metadata)".contains("secret")) }
    }

    // MARK: Spans

    @Test func eachCallIsASpanWithinTheCallers() async throws {
        let tracer = InMemoryTracer()
        let server = try await MockServer(.echo)
        server.once(102, .status(.overloaded))
        server.on(103, .status(.noPermission))
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.tracer = tracer
            $0.retryPolicy = RetryPolicy(maximumAttempts: 2, backoff: Backoff(base: .milliseconds(1)))
        }
        try await tracer.withAnySpan("screen") { _ in
            for type: UInt32 in [101, 102] {
                _ = try await client.data(for: SocketRequest(type: type, body: self.secret))
            }
        }
        _ = try? await client.data(for: SocketRequest(type: 103, body: self.secret))
        try await eventually("four spans") { tracer.finishedSpans.count == 4 }
        let spans = Dictionary(uniqueKeysWithValues: tracer.finishedSpans.map { ($0.operationName, $0) })
        let screen = try #require(spans["screen"])
        let plain = try #require(spans["call 101"])
        #expect(plain.kind == .client)
        #expect(plain.parentSpanID == screen.spanID)
        #expect(plain.traceID == screen.traceID)
        #expect(plain.attributes.get("rpc.system") == "hhsocket")
        #expect(plain.attributes.get("server.port") == .int64(Int64(server.endpoint.port)))
        #expect(plain.attributes.get("hhsocket.attempts") == 1)
        let retried = try #require(spans["call 102"])
        #expect(retried.events.map(\.name) == ["retry"])
        #expect(retried.attributes.get("hhsocket.attempts") == 2)
        let failed = try #require(spans["call 103"])
        #expect(failed.parentSpanID == nil)
        #expect(failed.status?.code == .error)
        #expect(failed.attributes.get("error.type") == "noPermission")
        #expect(tracer.activeSpans.isEmpty)
        for span in tracer.finishedSpans { #expect(!"\(span)".contains(self.secret)) }
    }

    @Test func spansOfInterceptorsAreWithinTheCalls() async throws {
        struct Child: SocketInterceptor {
            var tracer: InMemoryTracer
            func intercept(_ request: SocketRequest, next: Next) async throws -> SocketResponse {
                try await self.tracer.withAnySpan("interceptor") { _ in try await next(request) }
            }
        }
        let tracer = InMemoryTracer()
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.tracer = tracer
            $0.interceptors = [Child(tracer: tracer)]
        }
        _ = try await client.data(for: SocketRequest(type: 101))
        let spans = Dictionary(uniqueKeysWithValues: tracer.finishedSpans.map { ($0.operationName, $0) })
        #expect(spans["interceptor"]?.parentSpanID == spans["call 101"]?.spanID)
        #expect(spans.count == 2)
    }

    @Test func spansOfCallsThatAreNeverSentEndToo() async throws {
        let tracer = InMemoryTracer()
        var configuration = SocketClient.Configuration(servers: [Endpoint(host: "127.0.0.1", port: 1)])
        configuration.tracer = tracer
        let client = SocketClient(configuration: configuration)
        _ = try? await client.data(for: SocketRequest(type: 101))
        _ = try? await client.data(for: SocketRequest(type: 3))
        let task = client.dataTask(with: SocketRequest(type: 102))
        task.cancel()
        try await eventually("the cancellation") { task.state == .completed }
        #expect(tracer.finishedSpans.count == 2)
        #expect(tracer.activeSpans.isEmpty)
    }
}
