// SPDX-License-Identifier: Apache-2.0
import HHSocket
public import Metrics
import NIOConcurrencyHelpers
import NIOCore

/// Counts requests and measures their duration: `hhsocket.server.answers` (`type`, `status`) and
/// `hhsocket.server.answer_time` (`type`), within the inner layers. Requests that are refused before a handler begins
/// are counted, without a duration.
public final class MetricsMiddleware: ServerMiddleware, RefusalObserver {
    /// The number of types, and of pairs of type and status, with their own figures; all others are counted together,
    /// because a metric is kept for ever.
    static let maximumKinds = 1_000

    private struct Kind: Hashable {
        /// Nil for types that no handler has.
        var type: UInt32?
        var status: Status
    }

    private struct State {
        /// The types with their own names.
        var types: Set<UInt32?> = []
        var times: [UInt32: Timer] = [:]
        var answers: [Kind: Counter] = [:]
    }

    private let factory: any MetricsFactory
    private let state = NIOLockedValueBox(State())

    /// - Parameter factory: The factory of the metrics; nil, the default, for the one given to
    ///   `MetricsSystem.bootstrap`.
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

    public func refused(_ header: RequestHeader, _ status: Status, _ session: ServerSession) {
        // Clients choose types without a handler, which must not take the places of others.
        self.note(header.hasHandler ? header.type : nil, status, nil)
    }

    private static let otherName = "other"

    /// - Parameters:
    ///   - type: Nil for one that no handler has.
    ///   - time: Nil where nothing ran.
    private func note(_ type: UInt32?, _ status: Status, _ time: TimeAmount?) {
        let (timer, counter) = self.state.withLockedValue { state -> (Timer?, Counter) in
            let counter = self.counter(type, status, &state)
            return (time.map { _ in self.timer(type, &state) }, counter)
        }
        if let time { timer?.recordNanoseconds(time.nanoseconds) }
        counter.increment()
    }

    private func timer(_ type: UInt32?, _ state: inout State) -> Timer {
        if let type, let timer = state.times[type] { return timer }
        let isKnown = type != nil && state.times.count < Self.maximumKinds
        let timer = Timer(
            label: "hhsocket.server.answer_time",
            dimensions: [("type", isKnown ? Self.name(type) : Self.otherName)],
            factory: self.factory
        )
        if isKnown, let type { state.times[type] = timer }
        return timer
    }

    private func counter(_ type: UInt32?, _ status: Status, _ state: inout State) -> Counter {
        let kind = Kind(type: type, status: status)
        if let counter = state.answers[kind] { return counter }
        let hasTypeRoom = type == nil || state.types.contains(type) || state.types.count < Self.maximumKinds
        let isKnown = hasTypeRoom && state.answers.count < Self.maximumKinds
        let counter = Counter(
            label: "hhsocket.server.answers",
            dimensions: [
                ("type", hasTypeRoom ? Self.name(type) : Self.otherName),
                ("status", isKnown ? "\(status)" : Self.otherName),
            ],
            factory: self.factory
        )
        if hasTypeRoom { state.types.insert(type) }
        if isKnown { state.answers[kind] = counter }
        return counter
    }

    private static func name(_ type: UInt32?) -> String { type.map { "\($0)" } ?? Self.otherName }
}
