// SPDX-License-Identifier: Apache-2.0
#if Outbox
import NIOConcurrencyHelpers

/// The observers of an outbox.
final class OutboxObservers: Sendable {
    private struct State {
        var events: [Int: AsyncStream<OutboxEvent>.Continuation] = [:]
        var changes: [Int: AsyncStream<Void>.Continuation] = [:]
        var lastNumber = 0
        var isFinished = false
    }

    /// The number of events that a stream keeps for its reader; older ones are dropped.
    static let bufferLimit = 256

    private let state = NIOLockedValueBox(State())

    func makeEvents() -> AsyncStream<OutboxEvent> {
        self.make(\.events, .bufferingNewest(Self.bufferLimit)) { _ in }
    }

    /// Makes a stream that yields immediately, and whenever the state may have changed. It keeps one element, which
    /// stands for all changes.
    func makeChanges() -> AsyncStream<Void> {
        self.make(\.changes, .bufferingNewest(1)) { $0.yield() }
    }

    private func make<Element>(
        _ path: any WritableKeyPath<State, [Int: AsyncStream<Element>.Continuation]> & Sendable,
        _ policy: AsyncStream<Element>.Continuation.BufferingPolicy,
        _ begin: (AsyncStream<Element>.Continuation) -> Void
    ) -> AsyncStream<Element> {
        let (stream, continuation) = AsyncStream.makeStream(of: Element.self, bufferingPolicy: policy)
        let number: Int? = self.state.withLockedValue { state in
            guard !state.isFinished else { return nil }
            state.lastNumber += 1
            state[keyPath: path][state.lastNumber] = continuation
            return state.lastNumber
        }
        begin(continuation)
        guard let number else {
            continuation.finish()
            return stream
        }
        continuation.onTermination = { [weak self] _ in
            self?.state.withLockedValue { _ = $0[keyPath: path].removeValue(forKey: number) }
        }
        return stream
    }

    func report(_ event: OutboxEvent) {
        for continuation in self.state.withLockedValue({ Array($0.events.values) }) { continuation.yield(event) }
    }

    func changed() {
        for continuation in self.state.withLockedValue({ Array($0.changes.values) }) { continuation.yield() }
    }

    func finish() {
        let (events, changes) = self.state.withLockedValue { state in
            state.isFinished = true
            defer { (state.events, state.changes) = ([:], [:]) }
            return (Array(state.events.values), Array(state.changes.values))
        }
        for continuation in events { continuation.finish() }
        for continuation in changes { continuation.finish() }
    }
}
#endif
