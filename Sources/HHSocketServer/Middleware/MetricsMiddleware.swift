import HHSocket
public import Metrics
import NIOConcurrencyHelpers
import NIOCore

/// Counts requests and measures how long they take: `hhsocket.server.answers` (`type`, `status`) and
/// `hhsocket.server.answer_time` (`type`), of what is within it.
public final class MetricsMiddleware: ServerMiddleware {
    /// The number of types, and of pairs of type and status, that have figures of their own; all others are counted
    /// together, because a metric is kept for ever.
    static let maximumKinds = 1_000

    private struct Kind: Hashable {
        var type: UInt32
        var status: Status
    }

    private struct State {
        var times: [UInt32: Timer] = [:]
        var answers: [Kind: Counter] = [:]
    }

    private let factory: any MetricsFactory
    private let state = NIOLockedValueBox(State())

    /// - Parameter factory: Where the figures go; nil, the default: what `MetricsSystem.bootstrap` was given.
    public init(factory: (any MetricsFactory)? = nil) {
        self.factory = factory ?? MetricsSystem.factory
    }

    public func handle(
        _ request: ServerRequest,
        _ context: ServerContext,
        next: Router.Handler
    ) async throws -> ByteBuffer {
        try await self.timing(request, context, next) { self.note(request.type, $0, $1) }
    }

    private func note(_ type: UInt32, _ status: Status, _ time: TimeAmount) {
        let (timer, counter) = self.state.withLockedValue { state -> (Timer, Counter) in
            let kind = Kind(type: type, status: status)
            let typeName = state.times[type] != nil || state.times.count < Self.maximumKinds ? "\(type)" : "other"
            let timer =
                state.times[type]
                ?? Timer(
                    label: "hhsocket.server.answer_time",
                    dimensions: [("type", typeName)],
                    factory: self.factory
                )
            let isKnown = state.answers[kind] != nil || state.answers.count < Self.maximumKinds
            let counter =
                state.answers[kind]
                ?? Counter(
                    label: "hhsocket.server.answers",
                    dimensions: [("type", typeName), ("status", isKnown ? "\(status)" : "other")],
                    factory: self.factory
                )
            if typeName != "other" { state.times[type] = timer }
            if isKnown { state.answers[kind] = counter }
            return (timer, counter)
        }
        timer.recordNanoseconds(time.nanoseconds)
        counter.increment()
    }
}
