// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers

/// A value behind a lock, for whose changes tests wait without polling.
package final class Watched<Value: Sendable>: Sendable {
    private struct Waiter {
        /// Takes a value; returns a closure that resumes the waiting task, if it waits for this value.
        var offer: @Sendable (Value) -> (@Sendable () -> Void)?
        var cancel: @Sendable () -> Void
    }

    private struct State {
        var value: Value
        var waiters: [Int: Waiter] = [:]
        var lastWaiter = 0
    }

    private let state: NIOLockedValueBox<State>

    package init(_ value: Value) {
        self.state = NIOLockedValueBox(State(value: value))
    }

    /// The number of waiting tasks.
    package var waiterCount: Int { self.state.withLockedValue { $0.waiters.count } }

    /// Reads or changes the value, and resumes the tasks that waited for the new value.
    package func withLockedValue<Result>(_ body: (inout Value) throws -> Result) rethrows -> Result {
        let (result, resumptions) = try self.state.withLockedValue { state in
            let result = try body(&state.value)
            var resumptions: [@Sendable () -> Void] = []
            for (number, waiter) in state.waiters {
                guard let resume = waiter.offer(state.value) else { continue }
                state.waiters[number] = nil
                resumptions.append(resume)
            }
            return (result, resumptions)
        }
        for resume in resumptions { resume() }
        return result
    }

    package var current: Value { self.withLockedValue { $0 } }

    /// Waits until `condition` holds, which is checked after each change, with the lock held.
    package func wait(
        _ what: String,
        within time: Duration = patience,
        fileID: String = #fileID,
        line: Int = #line,
        until condition: @escaping @Sendable (Value) -> Bool
    ) async throws {
        try await self.value(what, within: time, fileID: fileID, line: line) { condition($0) ? () : nil }
    }

    /// Waits until `find` finds something in the value, and returns it.
    package func value<Found: Sendable>(
        _ what: String,
        within time: Duration = patience,
        fileID: String = #fileID,
        line: Int = #line,
        find: @escaping @Sendable (Value) -> Found?
    ) async throws -> Found {
        try await withDeadline(what, within: time, fileID: fileID, line: line) { try await self.found(find) }
    }

    /// - Throws: `CancellationError` when the task is cancelled.
    private func found<Found: Sendable>(_ find: @escaping @Sendable (Value) -> Found?) async throws -> Found {
        let number = self.state.withLockedValue { state in
            state.lastWaiter += 1
            return state.lastWaiter
        }
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in self.register(number, find, continuation) }
        } onCancel: {
            self.state.withLockedValue { $0.waiters.removeValue(forKey: number) }?.cancel()
        }
    }

    private func register<Found: Sendable>(
        _ number: Int,
        _ find: @escaping @Sendable (Value) -> Found?,
        _ continuation: CheckedContinuation<Found, any Error>
    ) {
        let waiter = Waiter(
            offer: { value in
                guard let found = find(value) else { return nil }
                return { continuation.resume(returning: found) }
            },
            cancel: { continuation.resume(throwing: CancellationError()) }
        )
        let resume: (@Sendable () -> Void)? = self.state.withLockedValue { state in
            // A task that was cancelled before is seen here; one that is cancelled later finds its waiter.
            if Task.isCancelled { return waiter.cancel }
            if let resume = waiter.offer(state.value) { return resume }
            state.waiters[number] = waiter
            return nil
        }
        resume?()
    }
}

extension Watched where Value == Int {
    /// - Returns: The new value.
    @discardableResult
    package func increment() -> Int {
        self.withLockedValue { value in
            value += 1
            return value
        }
    }
}
