// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
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
        try await self.timing(request, context, next: next) { self.note(request.type, status: $0, time: $1) }
    }

    public func refused(_ header: RequestHeader, with status: Status, in session: ServerSession) {
        // Clients choose types without a handler, which must not take the places of others.
        self.note(header.hasHandler ? header.type : nil, status: status, time: nil)
    }

    private static let otherName = "other"

    /// - Parameters:
    ///   - type: Nil for one that no handler has.
    ///   - time: Nil where nothing ran.
    private func note(_ type: UInt32?, status: Status, time: TimeAmount?) {
        if let time { self.timer(type).recordNanoseconds(time.nanoseconds) }
        self.counter(type, status).increment()
    }

    // Metrics are made outside the lock: the factory is the application's. Of two that are made at the same time one is
    // kept, as the factory gives equal ones.

    private func timer(_ type: UInt32?) -> Timer {
        let (found, isKnown) = self.state.withLockedValue { state in
            (type.flatMap { state.times[$0] }, type != nil && state.times.count < Self.maximumKinds)
        }
        if let found { return found }
        let timer = Timer(
            label: "hhsocket.server.answer_time",
            dimensions: [("type", isKnown ? Self.name(type) : Self.otherName)],
            factory: self.factory
        )
        guard isKnown, let type else { return timer }
        return self.state.withLockedValue { state in
            if state.times[type] == nil { state.times[type] = timer }
            return state.times[type] ?? timer
        }
    }

    private func counter(_ type: UInt32?, _ status: Status) -> Counter {
        let kind = Kind(type: type, status: status)
        let (found, hasTypeRoom, isKnown) = self.state.withLockedValue { state in
            let hasTypeRoom = type == nil || state.types.contains(type) || state.types.count < Self.maximumKinds
            return (state.answers[kind], hasTypeRoom, hasTypeRoom && state.answers.count < Self.maximumKinds)
        }
        if let found { return found }
        let counter = Counter(
            label: "hhsocket.server.answers",
            dimensions: [
                ("type", hasTypeRoom ? Self.name(type) : Self.otherName),
                ("status", isKnown ? "\(status)" : Self.otherName),
            ],
            factory: self.factory
        )
        return self.state.withLockedValue { state in
            if hasTypeRoom { state.types.insert(type) }
            if isKnown, state.answers[kind] == nil { state.answers[kind] = counter }
            return state.answers[kind] ?? counter
        }
    }

    private static func name(_ type: UInt32?) -> String { type.map { "\($0)" } ?? Self.otherName }
}
