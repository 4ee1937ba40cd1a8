// SPDX-License-Identifier: Apache-2.0
import HHSocket
import Metrics
import NIOConcurrencyHelpers
import NIOCore
import Tracing

/// The counts, metrics, log and spans of a client's calls. It knows a call by its request and its ``TaskFlight``.
final class CallReporter: @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable, or used only on the socket thread like the metrics; the counts are
    // locked.
    /// The tracer of calls; nil if spans would be discarded.
    let tracer: (any Tracer)?
    private let log: CallLog?
    private var metrics: CallMetrics?
    private let counts = NIOLockedValueBox(ClientStatistics())

    init(_ configuration: ClientConfiguration) {
        let tracer = configuration.tracer ?? InstrumentationSystem.tracer
        self.tracer = tracer is NoOpTracer ? nil : tracer
        self.log = configuration.socket.logger.map { CallLog($0) }
        self.metrics = CallMetrics(factory: configuration.socket.metricsFactory ?? MetricsSystem.factory)
    }

    /// Whether single calls are logged, measured or traced.
    var observesCalls: Bool { self.log != nil || self.metrics != nil || self.tracer != nil }

    /// The counts so far. Any thread.
    var statistics: ClientStatistics { self.counts.withLockedValue { $0 } }

    func count(_ counter: WritableKeyPath<ClientStatistics, Int>, by amount: Int = 1) {
        self.counts.withLockedValue { $0[keyPath: counter] += amount }
        self.metrics?.counted(counter, by: amount)
    }

    // MARK: Calls

    /// Starts the span of a call that the client has accepted.
    func accepted(_ request: SocketRequest, _ flight: inout TaskFlight) {
        guard let tracer = self.tracer else { return }
        flight.span = CallSpan.start(request, in: flight.context ?? .topLevel, tracer)
    }

    /// Reports that a call of this type will be retried.
    func retries(_ type: UInt32, _ flight: TaskFlight, after error: SocketError, in delay: Duration) {
        self.metrics?.retried(after: error.code)
        self.log?.retries(type, after: error, in: delay)
        if let span = flight.span { CallSpan.retried(span, after: error) }
    }

    /// Reports that a call of this type is sent to another server, because this one is shutting down.
    func isSentAgain(_ type: UInt32, _ flight: TaskFlight, after error: SocketError) {
        self.count(\.resentCalls)
        self.log?.isSentAgain(type, after: error)
        if let span = flight.span { CallSpan.isSentAgain(span, after: error) }
    }

    /// Reports the completion of an accepted call of this type to metrics, log and tracer.
    func completed(
        _ type: UInt32,
        _ flight: inout TaskFlight,
        with result: Result<SocketResponse, SocketError>
    ) {
        if self.metrics != nil, let queued = flight.queued.date, let completed = flight.completed.date {
            let outcome: SocketError.Code? = if case .failure(let error) = result { error.code } else { nil }
            self.metrics?.completed(type, outcome, after: completed - queued)
        }
        self.log?.completed(type, flight, result)
        if let span = flight.span {
            CallSpan.end(span, flight, result)
            flight.span = nil
        }
    }

    /// Records the numbers of calls at present.
    func measure(inFlight: Int, waiting: Int) {
        self.metrics?.measure(inFlight: inFlight, waiting: waiting)
    }
}
