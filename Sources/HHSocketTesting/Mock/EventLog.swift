// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// The error of a test that waited in vain.
public struct NothingHappened: Error, CustomStringConvertible {
    /// A description of the expected event, the waiting time, and the events that occurred instead.
    public let description: String
}

/// An event with a short description, for the errors of tests that waited in vain.
protocol SummarizedEvent {
    var summary: String { get }
}

/// The events so far, in order, and the waiters for further ones.
final class EventLog<Event: Sendable>: Sendable {
    private struct Waiter {
        var missing: Int
        var found: [Event]
        var matches: @Sendable (Event) -> Bool
        var continuation: CheckedContinuation<[Event], any Error>
        var deadline: Scheduled<Void>?
    }

    private struct State {
        var events: [Event] = []
        var waiters: [UInt64: Waiter] = [:]
        var lastNumber: UInt64 = 0
        /// The waiters whose task was cancelled before they waited.
        var cancelled: Set<UInt64> = []
    }

    private let keepsHistory: Bool
    private let state = NIOLockedValueBox(State())

    init(keepsHistory: Bool = true) {
        self.keepsHistory = keepsHistory
    }

    var events: [Event] { self.state.withLockedValue { $0.events } }

    func append(_ event: Event) {
        let served: [Waiter] = self.state.withLockedValue { state in
            if self.keepsHistory { state.events.append(event) }
            guard !state.waiters.isEmpty else { return [] }
            var served: [Waiter] = []
            for number in Array(state.waiters.keys) where state.waiters[number]?.matches(event) == true {
                state.waiters[number]?.found.append(event)
                state.waiters[number]?.missing -= 1
                if let waiter = state.waiters[number], waiter.missing <= 0 {
                    state.waiters[number] = nil
                    served.append(waiter)
                }
            }
            return served
        }
        for waiter in served {
            waiter.deadline?.cancel()
            waiter.continuation.resume(returning: waiter.found)
        }
    }

    /// Waits for the first `count` events that match, including past ones.
    ///
    /// - Parameter isFulfilled: Ends the wait at once, without events, if it returns true when the wait begins.
    @discardableResult
    func wait(
        _ count: Int,
        within time: Duration,
        _ what: String,
        unless isFulfilled: @escaping @Sendable () -> Bool = { false },
        where matches: @escaping @Sendable (Event) -> Bool
    ) async throws -> [Event] {
        let number = self.state.withLockedValue { state in
            state.lastNumber += 1
            return state.lastNumber
        }
        defer { self.state.withLockedValue { _ = $0.cancelled.remove(number) } }
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation {
                self.begin(number, count: count, within: time, what: what, unless: isFulfilled, where: matches, for: $0)
            }
        } onCancel: {
            let waiter = self.state.withLockedValue { state in
                guard let waiter = state.waiters.removeValue(forKey: number) else {
                    state.cancelled.insert(number)
                    return nil as Waiter?
                }
                return waiter
            }
            waiter?.deadline?.cancel()
            waiter?.continuation.resume(throwing: CancellationError())
        }
    }

    private func begin(
        _ number: UInt64,
        count: Int,
        within time: Duration,
        what: String,
        unless isFulfilled: @Sendable () -> Bool,
        where matches: @escaping @Sendable (Event) -> Bool,
        for continuation: CheckedContinuation<[Event], any Error>
    ) {
        let now: Result<[Event], any Error>? = self.state.withLockedValue { state in
            guard state.cancelled.remove(number) == nil else { return .failure(CancellationError()) }
            let found = Array(state.events.lazy.filter(matches).prefix(max(0, count)))
            guard found.count < count else { return .success(found) }
            state.waiters[number] = Waiter(
                missing: count - found.count,
                found: found,
                matches: matches,
                continuation: continuation
            )
            return nil
        }
        if let now { return continuation.resume(with: now) }
        // Checked after the waiter is registered: later events reach it.
        if isFulfilled() {
            let waiter = self.state.withLockedValue { $0.waiters.removeValue(forKey: number) }
            waiter?.continuation.resume(returning: [])
            return
        }
        let deadline = MultiThreadedEventLoopGroup.singleton.any().scheduleTask(in: TimeAmount(time)) {
            let late = self.state.withLockedValue { $0.waiters.removeValue(forKey: number) }
            guard let late else { return }
            let all = self.events
            let recent = all.suffix(10).map { Self.summary(of: $0) }.joined(separator: "; ")
            let came = all.isEmpty ? "nothing has" : "the last of \(all.count) to come: \(recent)"
            late.continuation.resume(
                throwing: NothingHappened(
                    description: "waited \(time) for \(what), and \(late.found.count) came; \(came)"
                )
            )
        }
        let isOver = self.state.withLockedValue { state in
            state.waiters[number]?.deadline = deadline
            return state.waiters[number] == nil
        }
        if isOver { deadline.cancel() }
    }

    private static func summary(of event: Event) -> String {
        (event as? any SummarizedEvent)?.summary ?? "\(event)"
    }
}
