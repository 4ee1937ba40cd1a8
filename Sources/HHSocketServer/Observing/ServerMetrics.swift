// SPDX-License-Identifier: Apache-2.0
import Metrics
import NIOConcurrencyHelpers
import NIOCore

/// A server's metrics, for swift-metrics: the numbers of ``ServerStatistics`` as counters, and the current state as
/// gauges. Written once a second, so that requests pay nothing for it. <doc:Operations> has the names.
final class ServerMetrics: Sendable {
    private struct State {
        var written = ServerStatistics()
        var timer: RepeatedTask?
    }

    private static let interval = TimeAmount.seconds(1)

    private let parts: ServerParts
    private let loops: [ServerLoop]
    private let counters: [(number: ServerCounter, counter: Counter)]
    private let connections: Gauge
    private let connectionsByLoop: [Gauge]
    private let waitingHandshakes: Gauge
    private let inFlight: Gauge
    private let bufferedBytes: Gauge
    private let heldBytes: Gauge
    private let principals: Gauge
    private let keptAnswers: Gauge
    private let keptAnswerBytes: Gauge
    private let concurrencyLimits: [(limiter: ConcurrencyLimiter, gauge: Gauge)]
    private let state = NIOLockedValueBox(State())

    /// Nil without a metrics backend.
    init?(factory: any MetricsFactory, parts: ServerParts, loops: [ServerLoop]) {
        guard !(factory is NOOPMetricsHandler) else { return nil }
        self.parts = parts
        self.loops = loops
        self.counters = ServerCounter.allCases.map {
            ($0, Counter(label: "hhsocket.server.\($0.name)", factory: factory))
        }
        self.connections = Gauge(label: "hhsocket.server.connections", factory: factory)
        self.connectionsByLoop = loops.indices.map {
            Gauge(label: "hhsocket.server.loop_connections", dimensions: [("loop", "\($0)")], factory: factory)
        }
        self.waitingHandshakes = Gauge(label: "hhsocket.server.waiting_handshakes", factory: factory)
        self.inFlight = Gauge(label: "hhsocket.server.requests_in_flight", factory: factory)
        self.bufferedBytes = Gauge(label: "hhsocket.server.buffered_bytes", factory: factory)
        self.heldBytes = Gauge(label: "hhsocket.server.held_bytes", factory: factory)
        self.principals = Gauge(label: "hhsocket.server.principals", factory: factory)
        self.keptAnswers = Gauge(label: "hhsocket.server.idempotent_answers", factory: factory)
        self.keptAnswerBytes = Gauge(label: "hhsocket.server.idempotent_answer_bytes", factory: factory)
        let limiters = parts.rules.routes.sorted { $0.key < $1.key }.compactMap { type, route in
            route.rules.limiter.map { (type, $0) }
        }
        // Only for the number of types with their own figures.
        self.concurrencyLimits = limiters.prefix(MetricsMiddleware.maximumKinds).map { type, limiter in
            let dimensions = [("type", "\(type)")]
            return (
                limiter,
                Gauge(label: "hhsocket.server.concurrency_limit", dimensions: dimensions, factory: factory)
            )
        }
        let timer = loops.first?.eventLoop.scheduleRepeatedTask(
            initialDelay: Self.interval,
            delay: Self.interval
        ) { [weak self] _ in self?.write() }
        self.state.withLockedValue { $0.timer = timer }
    }

    /// Writes the remaining changes, for the last time.
    func end() {
        self.state.withLockedValue { $0.timer }?.cancel()
        self.write()
    }

    private func write() {
        let (before, now) = self.state.withLockedValue { state in
            let before = state.written
            state.written = self.loops.reduce(into: ServerStatistics()) { $0 += $1.counters.statistics }
            return (before, state.written)
        }
        // Outside the lock: these are the application's objects.
        for (number, counter) in self.counters {
            let change = now[number] - before[number]
            if change > 0 { counter.increment(by: change) }
        }
        self.connections.record(self.loops.reduce(0) { $0 + $1.counters.connectionCount })
        for (gauge, loop) in zip(self.connectionsByLoop, self.loops) { gauge.record(loop.counters.connectionCount) }
        self.waitingHandshakes.record(self.loops.reduce(0) { $0 + $1.handshakes.waitingCount })
        self.inFlight.record(self.parts.books.ledger.requestsInFlight)
        self.bufferedBytes.record(self.parts.books.ledger.bytes - self.parts.books.ledger.connectionBytes)
        self.heldBytes.record(self.parts.books.ledger.bytes)
        self.principals.record(self.parts.books.ledger.principals.count)
        let kept = self.parts.services.idempotentAnswers.kept
        self.keptAnswers.record(kept.count)
        self.keptAnswerBytes.record(kept.bytes)
        for (limiter, gauge) in self.concurrencyLimits { gauge.record(limiter.limit) }
    }
}
