// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import InMemoryTracing
import MetricsTestKit
import NIOCore
import TestSupport
import Testing
import Tracing

@testable import HHSocketRPC

/// Metrics and spans of a client's streams, each of which is one call.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StreamObservabilityTests {
    private typealias Peer = StreamPeer

    @Test func aStreamIsCountedAsACallAndItsItemsBeside() async throws {
        let metrics = TestMetrics()
        let peer = try await Peer { $0.socket.metricsFactory = metrics }
        let (good, goodSerial) = try await peer.open()
        let (bad, badSerial) = try await peer.open()
        let (gone, goneSerial) = try await peer.open()
        @Sendable func meter(_ label: String) -> Double? { try? metrics.expectMeter(label).lastValue }
        try await eventually("three in flight") { meter("hhsocket.calls_in_flight") == 3 }
        for text in ["1", "2"] { try await good.send(text) }
        _ = try await peer.frames(2, FrameType.item, goodSerial)
        try await peer.send(
            Peer.item(goodSerial, "a"),
            Peer.item(goodSerial, "b"),
            Peer.item(goodSerial, "c"),
            Peer.end(goodSerial)
        )
        try await peer.send(Peer.end(badSerial, .database))
        gone.cancel()
        _ = try await peer.frames(1, FrameType.cancel, goneSerial)
        #expect(try await good.allTexts().texts == ["a", "b", "c"])
        #expect(try await bad.allTexts().error?.code == .database)
        try await eventually("none in flight") { meter("hhsocket.calls_in_flight") == 0 }
        func calls(_ outcome: String) throws -> Int64 {
            try metrics.expectCounter("hhsocket.calls", [("type", "\(Peer.type)"), ("outcome", outcome)]).totalValue
        }
        #expect(try calls("ok") == 1)
        #expect(try calls("database") == 1)
        #expect(try calls("cancelled") == 1)
        #expect(try metrics.expectTimer("hhsocket.call_time", [("type", "\(Peer.type)")]).values.count == 3)
        #expect(try metrics.expectCounter("hhsocket.opened_streams").totalValue == 3)
        #expect(try metrics.expectCounter("hhsocket.sent_items").totalValue == 2)
        #expect(try metrics.expectCounter("hhsocket.received_items").totalValue == 3)
        #expect(good.metrics?.attempts == 1 && bad.metrics?.attempts == 1)
    }

    @Test func streamsThatWaitForAFreeOneAreMeasured() async throws {
        let metrics = TestMetrics()
        let peer = try await Peer(maximumStreams: 1) { $0.socket.metricsFactory = metrics }
        let (first, serial) = try await peer.open()
        let second = peer.client.openStream(for: SocketRequest(type: Peer.type)) { _ in
        } completionHandler: { _ in
        }
        try await peer.fence()
        try await peer.send(Peer.end(serial))
        _ = try await first.response
        _ = try await peer.opening(1)
        second.cancel()
        try await eventually("the end of both") {
            (try? metrics.expectMeter("hhsocket.calls_in_flight").lastValue) == 0
        }
        let waiting = (try? metrics.expectMeter("hhsocket.calls_waiting").lastValue) ?? 0
        #expect(waiting == 0)
        #expect(second.metrics?.attempts == 1)
        #expect(try metrics.expectCounter("hhsocket.opened_streams").totalValue == 2)
    }

    // MARK: Spans

    @Test func eachStreamIsASpanWithinTheCallersFromItsStartToItsEnd() async throws {
        let tracer = InMemoryTracer()
        let peer = try await Peer { $0.tracer = tracer }
        let (stream, serial) = try await tracer.withAnySpan("screen") { _ in try await peer.open() }
        #expect(tracer.activeSpans.map(\.operationName) == ["call \(Peer.type)"])
        try await peer.send(Peer.item(serial, "the secret item"), Peer.end(serial))
        #expect(try await stream.allTexts().texts == ["the secret item"])
        try await eventually("two spans") { tracer.finishedSpans.count == 2 }
        let spans = Dictionary(uniqueKeysWithValues: tracer.finishedSpans.map { ($0.operationName, $0) })
        let screen = try #require(spans["screen"])
        let span = try #require(spans["call \(Peer.type)"])
        #expect(span.kind == .client && span.parentSpanID == screen.spanID && span.traceID == screen.traceID)
        #expect(span.attributes.get("hhsocket.serial") == .int64(Int64(serial)))
        #expect(span.attributes.get("hhsocket.attempts") == 1)
        #expect(span.status?.code != .error)
        #expect(tracer.activeSpans.isEmpty)
        for span in tracer.finishedSpans { #expect(!"\(span)".contains("secret")) }
    }

    @Test func aSpanReportsHowItsStreamFailed() async throws {
        let tracer = InMemoryTracer()
        let peer = try await Peer { $0.tracer = tracer }
        let (failed, serial) = try await peer.open()
        try await peer.send(Peer.item(serial, "1"), Peer.end(serial, .noPermission))
        _ = try await failed.allTexts()
        try await eventually("a span") { tracer.finishedSpans.count == 1 }
        #expect(tracer.finishedSpans[0].status?.code == .error)
        #expect(tracer.finishedSpans[0].attributes.get("error.type") == "noPermission")
        let (cancelled, _) = try await peer.open()
        cancelled.cancel()
        try await eventually("another") { tracer.finishedSpans.count == 2 }
        #expect(tracer.finishedSpans[1].attributes.get("error.type") == "cancelled")
        #expect(tracer.activeSpans.isEmpty)
    }

    @Test func aStreamThatIsOpenedAgainIsOneSpanWithAnEvent() async throws {
        let tracer = InMemoryTracer()
        let metrics = TestMetrics()
        let peer = try await Peer {
            $0.tracer = tracer
            $0.socket.metricsFactory = metrics
            $0.retryPolicy = RetryPolicy(maximumAttempts: 2, backoff: Backoff(base: .milliseconds(1)))
        }
        peer.server.once(Peer.type, .status(.overloaded))
        peer.server.on(Peer.type, .status(.ok))
        let stream = try await peer.client.stream(for: SocketRequest(type: Peer.type), kind: .serverStreaming)
        _ = try await stream.response
        try await eventually("a span") { tracer.finishedSpans.count == 1 }
        let span = tracer.finishedSpans[0]
        #expect(span.events.map(\.name) == ["retry"] && span.attributes.get("hhsocket.attempts") == 2)
        #expect(try metrics.expectCounter("hhsocket.retries", [("cause", "overloaded")]).totalValue == 1)
        #expect(try metrics.expectCounter("hhsocket.opened_streams").totalValue == 2)
    }
}
