// SPDX-License-Identifier: Apache-2.0
import Atomics
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

    private let loops: [ServerLoop]
    private let counters: [(number: ServerCounter, counter: Counter)]
    private let gauges: [(gauge: Gauge, value: @Sendable () -> Int)]
    private let connectionsByLoop: [Gauge]
    private let concurrencyLimits: [(limiter: ConcurrencyLimiter, gauge: Gauge)]
    private let state = NIOLockedValueBox(State())

    /// Nil without a metrics backend.
    init?(factory: any MetricsFactory, parts: ServerParts, loops: [ServerLoop]) {
        guard !(factory is NOOPMetricsHandler) else { return nil }
        self.loops = loops
        self.counters = ServerCounter.allCases.map {
            ($0, Counter(label: "hhsocket.server.\($0.name)", factory: factory))
        }
        let (ledger, answers) = (parts.books.ledger, parts.services.idempotentAnswers)
        let gauges: [(label: String, value: @Sendable () -> Int)] = [
            ("hhsocket.server.connections", { loops.reduce(0) { $0 + $1.counters.connectionCount } }),
            ("hhsocket.server.waiting_handshakes", { loops.reduce(0) { $0 + $1.handshakes.waitingCount } }),
            ("hhsocket.server.handshakes", { ledger.handshakes.load(ordering: .relaxed) }),
            ("hhsocket.server.held_descriptors", { ledger.descriptors.load(ordering: .relaxed) }),
            ("hhsocket.server.requests_in_flight", { ledger.requestsInFlight }),
            ("hhsocket.server.buffered_bytes", { ledger.bytes - ledger.connectionBytes }),
            ("hhsocket.server.held_bytes", { ledger.bytes }),
            ("hhsocket.server.principals", { ledger.principals.count }),
            ("hhsocket.server.idempotent_answers", { answers.kept.count }),
            ("hhsocket.server.idempotent_answer_bytes", { answers.kept.bytes }),
        ]
        self.gauges = gauges.map { (Gauge(label: $0.label, factory: factory), $0.value) }
        self.connectionsByLoop = loops.indices.map {
            Gauge(label: "hhsocket.server.loop_connections", dimensions: [("loop", "\($0)")], factory: factory)
        }
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
        for (gauge, value) in self.gauges { gauge.record(value()) }
        for (gauge, loop) in zip(self.connectionsByLoop, self.loops) { gauge.record(loop.counters.connectionCount) }
        for (limiter, gauge) in self.concurrencyLimits { gauge.record(limiter.limit) }
    }
}
