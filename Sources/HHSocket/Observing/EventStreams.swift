// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers

/// The `AsyncStream`s of a connection's events.
package typealias EventStreams = Broadcast<SocketEvent>

/// The `AsyncStream`s of an object's events. Each keeps the latest events for a slow reader.
package final class Broadcast<Event: Sendable>: Sendable {
    private struct State {
        var continuations: [Int: AsyncStream<Event>.Continuation] = [:]
        var nextID = 0
        var isFinished = false
    }

    /// The number of events that a stream keeps for its reader; older ones are dropped.
    package static var bufferLimit: Int { 256 }

    private let state = NIOLockedValueBox(State())

    package init() {}

    package func makeStream() -> AsyncStream<Event> {
        let (stream, continuation) = AsyncStream.makeStream(
            of: Event.self,
            bufferingPolicy: .bufferingNewest(Self.bufferLimit)
        )
        let id: Int? = self.state.withLockedValue { state in
            guard !state.isFinished else { return nil }
            state.nextID += 1
            state.continuations[state.nextID] = continuation
            return state.nextID
        }
        if let id {
            continuation.onTermination = { [weak self] _ in
                self?.state.withLockedValue { _ = $0.continuations.removeValue(forKey: id) }
            }
        } else {
            continuation.finish()
        }
        return stream
    }

    package func yield(_ event: Event) {
        for continuation in self.state.withLockedValue({ Array($0.continuations.values) }) {
            continuation.yield(event)
        }
    }

    package func finish() {
        let continuations = self.state.withLockedValue { state in
            state.isFinished = true
            defer { state.continuations = [:] }
            return Array(state.continuations.values)
        }
        for continuation in continuations { continuation.finish() }
    }
}
