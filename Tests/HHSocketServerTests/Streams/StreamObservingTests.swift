// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketTesting
import InMemoryTracing
import MetricsTestKit
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Records the events that layers around streams observe.
private final class Observer: ServerMiddleware, ServerAdmission, RefusalObserver {
    let lines = NIOLockedValueBox<[String]>([])

    private func note(_ line: String) { self.lines.withLockedValue { $0.append(line) } }

    func admit(_ header: RequestHeader, _ session: ServerSession) -> Admission {
        self.note("admits \(header.serial) of \(header.length) bytes")
        return header.serial == 59 ? .refuse(.noPermission) : .admit
    }

    func handle(_ request: ServerRequest, _ context: ServerContext, next: Router.Handler) async throws -> ByteBuffer {
        self.note("begins \(request.serial)")
        do {
            let body = try await next(request, context)
            self.note("ends \(request.serial) with \(body.readableBytes) bytes")
            return body
        } catch {
            self.note("ends \(request.serial) by \(Status(answering: error).rawValue)")
            throw error
        }
    }

    func refused(_ header: RequestHeader, with status: Status, in session: ServerSession) {
        self.note("refuses \(header.serial) by \(status.rawValue)")
    }
}

/// Layers around handlers see a stream as one call.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StreamObservingTests {
    /// Has streams end in different ways: by 200, by an error, by a violation and by a rejection.
    private func runStreams(_ layer: any RouterLayer, on executor: HandlerExecutor = .connection) async throws {
        try await withServer(.init(), makeStreamRouter(on: executor, layer: layer)) { server in
            let client = try await StreamClient(server)
            try await client.open(StreamCall.gather, 50)
            for item in ["a", "b"] { await client.item(50, item) }
            await client.end(50)
            try await client.expectEnd(50, .ok, "a;b;")
            try await client.open(StreamCall.refuse, 51)
            await client.end(51)
            try await client.expectEnd(51, .noPermission, "no")
            try await client.open(StreamCall.read, 52)
            await client.piece(FrameType.item, 52, length: 1)
            await client.end(52)
            try await client.expectEnd(52, .illegalFormat)
            try await client.open(StreamCall.gather, 53, "body")
            try await client.expectEnd(53, .illegalFormat)
            try await server.becomesIdle()
        }
    }

    @Test func middlewareAndAdmissionsSeeAStreamOnce() async throws {
        let observer = Observer()
        try await withServer(.init(), makeStreamRouter(on: .connection, layer: observer)) { server in
            let client = try await StreamClient(server)
            try await client.open(StreamCall.gather, 50)
            for item in ["a", "b"] { await client.item(50, item) }
            await client.end(50)
            try await client.expectEnd(50, .ok, "a;b;")
            try await client.open(StreamCall.gather, 59)
            try await client.expectEnd(59, .noPermission)
            try await server.becomesIdle()
            #expect(server.statistics[.streamsOpened] == 1)
            #expect(server.statistics[.refusedByAdmission] == 1)
        }
        #expect(
            observer.lines.withLockedValue { $0 } == [
                "admits 50 of 0 bytes", "begins 50", "ends 50 with 4 bytes", "admits 59 of 0 bytes",
                "refuses 59 by 405",
            ]
        )
    }

    @Test(arguments: [HandlerExecutor.global, .connection])
    func middlewareSeesHowAStreamHasEnded(_ executor: HandlerExecutor) async throws {
        let observer = Observer()
        try await self.runStreams(observer, on: executor)
        let lines = observer.lines.withLockedValue { $0 }
        #expect(lines.filter { $0.hasPrefix("begins") } == ["begins 50", "begins 51", "begins 52"])
        #expect(lines.contains("ends 51 by 405"))
        #expect(lines.contains("ends 52 by 303"))
        #expect(lines.filter { $0.hasPrefix("refuses") } == ["refuses 53 by 303"])
    }

    @Test func streamsAreCountedAndTimedAsCallsAre() async throws {
        let metrics = TestMetrics()
        try await self.runStreams(MetricsMiddleware(factory: metrics))
        let expected: [(UInt32, Status, Int64)] = [
            (StreamCall.gather, .ok, 1), (StreamCall.gather, .illegalFormat, 1), (StreamCall.refuse, .noPermission, 1),
            (StreamCall.read, .illegalFormat, 1),
        ]
        for (type, status, count) in expected {
            let counter = try metrics.expectCounter(
                "hhsocket.server.answers",
                [("type", "\(type)"), ("status", "\(status)")]
            )
            #expect(counter.totalValue == count)
        }
        let timer = try metrics.expectTimer("hhsocket.server.answer_time", [("type", "\(StreamCall.gather)")])
        #expect(timer.values.count == 1)
    }

    @Test func aSpanCoversAWholeStream() async throws {
        let tracer = InMemoryTracer()
        try await self.runStreams(TracingMiddleware(tracer: tracer))
        let spans = tracer.finishedSpans
        #expect(
            spans.map(\.operationName) == [
                "answer \(StreamCall.gather)", "answer \(StreamCall.refuse)", "answer \(StreamCall.read)",
            ]
        )
        #expect(spans.map { $0.status?.code } == [nil, .error, .error])
        #expect(
            spans.map { $0.attributes.get("hhsocket.status") } == [
                nil, .int64(Int64(Status.noPermission.rawValue)), .int64(Int64(Status.illegalFormat.rawValue)),
            ]
        )
    }

    @Test func theCountersOfStreamsAreMetrics() async throws {
        let metrics = TestMetrics()
        var configuration = SocketServer.Configuration.streaming { $0.maximumStreams = 1 }
        configuration.metricsFactory = metrics
        try await withServer(configuration, makeStreamRouter()) { server in
            let client = try await StreamClient(server)
            try await client.open(StreamCall.gather, 50)
            try await client.open(StreamCall.gather, 51)
            try await client.expectEnd(51, .overloaded)
            await client.end(50)
            try await client.expectEnd(50)
            try await server.becomesIdle()
        }
        let opened = try metrics.expectCounter("hhsocket.server.streams_opened")
        let refused = try metrics.expectCounter("hhsocket.server.overloads_of_streams")
        #expect((opened.totalValue, refused.totalValue) == (1, 1))
    }
}
