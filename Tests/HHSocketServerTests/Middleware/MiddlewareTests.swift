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

@testable import HHSocketServer

private struct Failure: Error {}

/// Middleware that observes handlers.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct MiddlewareTests {
    /// One handler for each outcome of a request, with its status.
    private static let endings: [(type: UInt32, status: Status)] = [
        (100, .ok), (101, .noPermission), (102, .unknown), (103, .ok),
    ]

    private func makeRouter(_ middleware: any ServerMiddleware) -> Router {
        var router = Router()
        router.use(middleware)
        router.handle(100) { request, _ in request.body }
        router.handle(101) { _, _ in throw StatusError(.noPermission) }
        router.handle(102) { _, _ in throw Failure() }
        router.handleSynchronously(103) { request, _ in request.body }
        return router
    }

    /// Calls each of ``endings`` once, in turn.
    private func callAll(_ greeter: Greeter) async throws {
        for (serial, ending) in zip(50..., Self.endings) as Zip2Sequence<PartialRangeFrom<UInt32>, [(UInt32, Status)]> {
            try await greeter.call(ending.0, serial: serial)
            #expect(try await greeter.answer().frame.status == ending.1)
        }
    }

    @Test func eachRequestIsLoggedWithItsStatus() async throws {
        let log = InMemoryLogHandler()
        var configuration = SocketServer.Configuration()
        configuration.logger = Logger(label: "test", factory: { _ in log })
        try await withServer(configuration, self.makeRouter(LoggingMiddleware(level: .notice))) { server in
            try await self.callAll(Greeter(server))
        }
        let lines = log.entries.filter { $0.message == "answered" }
        #expect(lines.map(\.level) == Self.endings.map { _ in .notice })
        #expect(lines.map { $0.metadata["type"] } == Self.endings.map { "\($0.type)" })
        #expect(lines.map { $0.metadata["status"] } == Self.endings.map { "\($0.status)" })
        #expect(lines.map { $0.metadata["serial"] } == ["50", "51", "52", "53"])
        #expect(lines.allSatisfy { $0.metadata["duration"] != nil && $0.metadata["connection"] == "1" })
    }

    @Test func eachRequestIsCountedAndTimed() async throws {
        let metrics = TestMetrics()
        try await withServer(.init(), self.makeRouter(MetricsMiddleware(factory: metrics))) { server in
            let greeter = try await Greeter(server)
            try await self.callAll(greeter)
            try await greeter.call(100, serial: 60)
            #expect(try await greeter.answer().frame.status == .ok)
        }
        for (type, status) in Self.endings {
            let counter = try metrics.expectCounter(
                "hhsocket.server.answers",
                [("type", "\(type)"), ("status", "\(status)")]
            )
            #expect(counter.totalValue == (type == 100 ? 2 : 1))
            let timer = try metrics.expectTimer("hhsocket.server.answer_time", [("type", "\(type)")])
            #expect(timer.values.count == (type == 100 ? 2 : 1))
            #expect(timer.values.allSatisfy { $0 > 0 })
        }
    }

    @Test func typesBeyondTheBoundAreCountedTogether() async throws {
        let metrics = TestMetrics()
        let middleware = MetricsMiddleware(factory: metrics)
        let bound = MetricsMiddleware.maximumKinds
        let types = UInt32(100)..<UInt32(100 + bound + 3)
        var router = Router()
        router.use(middleware)
        for type in types { router.handleSynchronously(type) { request, _ in request.body } }
        try await withServer(.init(), router) { server in
            let greeter = try await Greeter(server)
            for type in types {
                try await greeter.call(type)
                _ = try await greeter.answer()
            }
        }
        #expect(metrics.counters.filter { $0.label == "hhsocket.server.answers" }.count == bound + 1)
        let other = metrics.counters.filter { $0.dimensions.contains { $0 == ("type", "other") } }
        #expect(other.map(\.totalValue) == [3])
        #expect(other.allSatisfy { $0.dimensions.contains { $0 == ("status", "other") } })
        #expect(Set(metrics.timers.map { $0.dimensions[0].1 }).count == bound + 1)
    }

    @Test func spansAreAPartOfTheClientsTrace() async throws {
        let tracer = InMemoryTracer()
        try await withServer(.init(), self.makeRouter(TracingMiddleware(tracer: tracer) { _ in true })) { server in
            let greeter = try await Greeter(server)
            // Without a trace of the client each request begins one.
            try await self.callAll(greeter)
            _ = try await greeter.greet()
            let metadata = WireMetadata([InMemoryTracer.traceIDKey: "trace", InMemoryTracer.spanIDKey: "span"])
            try await greeter.call(100, serial: 60, ByteBuffer(), metadata)
            #expect(try await greeter.answer().frame.status == .ok)
        }
        let spans = tracer.finishedSpans
        #expect(spans.map(\.operationName) == Self.endings.map { "answer \($0.type)" } + ["answer 100"])
        #expect(spans.dropLast().allSatisfy { $0.parentSpanID == nil && $0.traceID != "trace" })
        #expect(spans.last?.traceID == "trace")
        #expect(spans.last?.parentSpanID == "span")
        #expect(spans.allSatisfy { $0.kind == .server })
        #expect(spans.map { $0.status?.code } == [nil, .error, .error, nil, nil])
        #expect(spans[1].attributes.get("hhsocket.status") == .int64(Int64(Status.noPermission.rawValue)))
        #expect(spans[1].attributes.get("hhsocket.serial") == .int64(51))
    }

    @Test func traceOfAClientThatIsNotKnownIsNotContinued() async throws {
        let tracer = InMemoryTracer()
        var router = Router()
        router.use(TracingMiddleware(tracer: tracer))
        router.handle(100) { request, _ in request.body }
        router.handle(110) { _, context in
            context.session.authenticate(as: "ann")
            return ByteBuffer()
        }
        try await withServer(.init(), router) { server in
            let greeter = try await Greeter(server)
            _ = try await greeter.greet()
            let metadata = WireMetadata([InMemoryTracer.traceIDKey: "trace", InMemoryTracer.spanIDKey: "span"])
            for (serial, type) in [(50, 100), (51, 110), (52, 100)] as [(UInt32, UInt32)] {
                try await greeter.call(type, serial: serial, ByteBuffer(), metadata)
                #expect(try await greeter.answer().frame.status == .ok)
            }
        }
        let spans = tracer.finishedSpans
        #expect(spans.map { $0.traceID == "trace" } == [false, false, true])
        #expect(spans.map { $0.parentSpanID == "span" } == [false, false, true])
    }

    @Test func aClientThatIsNotKnownDoesNotFindOutWhichTypesThereAre() async throws {
        var router = self.makeRouter(LoggingMiddleware())
        router.use(AuthenticationMiddleware(except: [110, 111]))
        router.handle(110) { _, context in
            context.session.authenticate(as: "ann")
            return ByteBuffer()
        }
        try await withServer(.init(), router) { server in
            let greeter = try await Greeter(server)
            func statuses(_ types: [UInt32]) async throws -> [Status] {
                var statuses: [Status] = []
                for type in types {
                    try await greeter.call(type)
                    statuses.append(try await greeter.answer().frame.status)
                }
                return statuses
            }
            // Types with a handler, without one, and open to strangers but without one.
            let before = try await statuses([100, 103, 99, 111])
            #expect(before == [.noPermission, .noPermission, .noPermission, .undefinedType])
            #expect(server.statistics[.unknownTypes] == 2)
            let after = try await statuses([110, 100, 99])
            #expect(after == [.ok, .ok, .undefinedType])
            #expect(server.statistics[.unknownTypes] == 3)
            #expect(server.requestsInFlight == 0)
        }
    }

    @Test func aServersMetricsAreWhatItsStatisticsSay() async throws {
        let metrics = TestMetrics()
        var configuration = SocketServer.Configuration()
        configuration.metricsFactory = metrics
        configuration.limits.concurrency = AdaptiveConcurrency()
        let release = Gate()
        var router = Router()
        router.handleSynchronously(100) { request, _ in request.body }
        router.handle(101) { _, _ in
            try? await release.wait()
            return ByteBuffer()
        }
        let statistics = try await withServer(configuration, router) { server in
            let greeter = try await Greeter(server)
            for serial in 50..<53 as Range<UInt32> {
                try await greeter.call(100, serial: serial)
                _ = try await greeter.answer()
            }
            try await greeter.call(99, serial: 53)
            _ = try await greeter.answer()
            try await greeter.call(101, serial: 54, ByteBuffer(repeating: 0, count: 10_000))
            @Sendable func gauge(_ name: String, type: String? = nil) -> Double? {
                let dimensions = type.map { [("type", $0)] } ?? []
                return try? metrics.expectGauge("hhsocket.server.\(name)", dimensions).lastValue
            }
            // Gauges are written about once a second, one after the other, so that a reader may find some from this
            // second and others from the previous one.
            try await eventually("the gauges") {
                guard let buffered = gauge("buffered_bytes"), gauge("requests_in_flight") == 1 else { return false }
                // The body's buffer and the request's task count too.
                return buffered >= 10_000 && buffered < 32_000
                    && gauge("held_bytes") == buffered + Double(ConnectionCost.plain)
                    && gauge("principals") == 1
                    && gauge("connections") == 1
                    && ["100", "101"].allSatisfy { gauge("concurrency_limit", type: $0) == 100 }
            }
            release.open()
            _ = try await greeter.answer()
            return server.statistics
        }
        #expect(statistics[.requests] == 5)
        #expect(statistics[.unknownTypes] == 1)
        #expect(try metrics.expectCounter("hhsocket.server.requests").totalValue == 5)
        #expect(try metrics.expectCounter("hhsocket.server.unknown_types").totalValue == 1)
        #expect(try metrics.expectCounter("hhsocket.server.connections_accepted").totalValue == 1)
        for counter in ServerCounter.allCases where statistics[counter] > 0 {
            let total = try metrics.expectCounter("hhsocket.server.\(counter.name)").totalValue
            #expect(total >= Int64(statistics[counter]), "\(counter)")
        }
    }
}
