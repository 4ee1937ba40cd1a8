// SPDX-License-Identifier: Apache-2.0
import HHSocket
import Metrics
import NIOConcurrencyHelpers
import NIOCore
import Tracing

/// The counts, metrics, log and spans of a client's calls. It knows a call by type, record and span.
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

    /// Starts the span of a call that the client accepts; nil without a tracer.
    func span(of request: SocketRequest, in context: ServiceContext?) -> (any Span)? {
        self.tracer.map { CallSpan.start(request, in: context ?? .topLevel, $0) }
    }

    /// Reports that a call of this type will be retried.
    func retries(_ type: UInt32, _ span: (any Span)?, after error: SocketError, in delay: Duration) {
        self.metrics?.retried(after: error.code)
        self.log?.retries(type, after: error, in: delay)
        if let span { CallSpan.retried(span, after: error) }
    }

    /// Reports that a call of this type is sent to another server, because this one is shutting down.
    func isSentAgain(_ type: UInt32, _ span: (any Span)?, after error: SocketError) {
        self.count(\.resentCalls)
        self.log?.isSentAgain(type, after: error)
        if let span { CallSpan.isSentAgain(span, after: error) }
    }

    /// Reports the answer to a call of this type that was sent at once.
    @inline(never)
    func answered(_ type: UInt32, _ facts: CallFacts, with response: SocketResponse, at time: NIODeadline) {
        var record = CallRecord(facts, bytesSent: 0)
        record.isAnswered(response.body.readableBytes, at: time)
        self.completed(type, record, at: response.endpoint, with: .success(response))
    }

    /// Reports the completion of an accepted call of this type to metrics, log and tracer.
    ///
    /// - Parameter server: The server that the request was sent to last.
    func completed(
        _ type: UInt32,
        _ record: CallRecord,
        at server: Endpoint?,
        span: (any Span)? = nil,
        with result: CallOutcome
    ) {
        if self.metrics != nil, let queued = record.queued.date, let completed = record.completed.date {
            let outcome: SocketError.Code? = if case .failure(let error) = result { error.code } else { nil }
            self.metrics?.completed(type, outcome, after: completed - queued)
        }
        self.log?.completed(type, attempts: record.attempts, at: server, with: result)
        if let span { CallSpan.end(span, attempts: record.attempts, at: server, with: result) }
    }

    /// Records the numbers of calls at present.
    func measure(inFlight: Int, waiting: Int) {
        self.metrics?.measure(inFlight: inFlight, waiting: waiting)
    }
}
