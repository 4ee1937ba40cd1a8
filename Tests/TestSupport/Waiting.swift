// SPDX-License-Identifier: Apache-2.0
// The waits of tests. `first(of:)`, `Watched` and `Gate` wait for events; `eventually` polls states without events.
// Each gives up after `patience`, with an error that names the missing event and the line.

/// The error of a wait that took too long.
package struct TimedOut: Error, CustomStringConvertible {
    package var description: String

    init(_ what: String, _ reason: String, _ fileID: String, _ line: Int) {
        self.description = "\(what): \(reason) (\(fileID):\(line))"
    }
}

/// The time that a test waits for an expected event. It is long, because machines can be slow; a test that passes never
/// waits that long.
package let patience = Duration.seconds(120)

/// Runs `body`, and fails if it takes longer than `time`.
///
/// Then `body` is cancelled. If it does not end within `grace`, the ``Watchdog`` ends the process: use
/// ``waitForValue(of:_:within:fileID:line:)`` to wait for a task, which cancellation does not interrupt.
package func withDeadline<T: Sendable>(
    _ what: String,
    within time: Duration = patience,
    grace: Duration = patience,
    fileID: String = #fileID,
    line: Int = #line,
    _ body: @escaping @Sendable () async throws -> T
) async throws -> T {
    let wait = Watchdog.shared.begin(Watchdog.Wait(what, fileID, line), lasting: time + grace)
    defer { Watchdog.shared.end(wait) }
    return try await withThrowingTaskGroup(of: T?.self) { group in
        group.addTask { try await body() }
        group.addTask {
            try await Task.sleep(for: time)
            return nil
        }
        defer { group.cancelAll() }
        guard let first = try await group.next(), let result = first else {
            throw TimedOut(what, "did not happen within \(time)", fileID, line)
        }
        return result
    }
}

/// Returns the value of `task`, or throws its error.
///
/// A task that takes longer than `time` is cancelled, and not waited for.
@discardableResult
package func waitForValue<Value: Sendable, Failure>(
    of task: Task<Value, Failure>,
    _ what: String,
    within time: Duration = patience,
    fileID: String = #fileID,
    line: Int = #line
) async throws -> Value {
    let result = Watched<Result<Value, Failure>?>(nil)
    Task {
        let ended = await task.result
        result.withLockedValue { $0 = ended }
    }
    let ended: Result<Value, Failure>
    do {
        ended = try await result.value(what, within: time, fileID: fileID, line: line) { $0 }
    } catch {
        task.cancel()
        throw error
    }
    return try ended.get()
}

/// The first value of `sequence` that satisfies `predicate`.
package func first<S: AsyncSequence & Sendable>(
    of sequence: S,
    _ what: String,
    fileID: String = #fileID,
    line: Int = #line,
    where predicate: @escaping @Sendable (S.Element) -> Bool = { _ in true }
) async throws -> S.Element where S.Element: Sendable {
    try await withDeadline(what, fileID: fileID, line: line) {
        for try await element in sequence where predicate(element) { return element }
        throw TimedOut(what, "the sequence ended without it", fileID, line)
    }
}

/// Checks every 2 ms until `condition` holds, for states without events.
package func eventually(
    _ what: String,
    within time: Duration = patience,
    fileID: String = #fileID,
    line: Int = #line,
    _ condition: @escaping @Sendable () async throws -> Bool
) async throws {
    try await eventually(what, within: time, every: .milliseconds(2), fileID: fileID, line: line, condition)
}

/// Checks every `interval` until `condition` holds, for states without events that cost much to look at.
///
/// The interval has no default: with one, calls without an interval would resolve to the form that returns a value,
/// since a `Bool` is a `Bool?` too, and would not wait.
package func eventually(
    _ what: String,
    within time: Duration = patience,
    every interval: Duration,
    fileID: String = #fileID,
    line: Int = #line,
    _ condition: @escaping @Sendable () async throws -> Bool
) async throws {
    try await withDeadline(what, within: time, fileID: fileID, line: line) {
        while !(try await condition()) { try await Task.sleep(for: interval) }
    }
}

/// Checks every 2 ms until there is a value, and returns it.
package func eventually<Value: Sendable>(
    _ what: String,
    within time: Duration = patience,
    fileID: String = #fileID,
    line: Int = #line,
    _ find: @escaping @Sendable () async throws -> Value?
) async throws -> Value {
    try await withDeadline(what, within: time, fileID: fileID, line: line) {
        while true {
            if let value = try await find() { return value }
            try await Task.sleep(for: .milliseconds(2))
        }
    }
}

/// Runs `attempt` with timeouts that double until its result is good, and returns the last result.
///
/// For tests of a timeout that must end a call after other events, such as the sending of the request: a machine may
/// stop for longer than a timeout that a test has time to wait for. The last timeout is 51.2 seconds.
package func withGrowingTimeout<Result>(
    isolation: isolated (any Actor)? = #isolation,
    _ attempt: (Duration) async throws -> Result,
    until isGood: (Result) -> Bool
) async throws -> Result {
    var timeout = Duration.milliseconds(50)
    while true {
        let result = try await attempt(timeout)
        if isGood(result) || timeout > .seconds(50) { return result }
        timeout *= 2
    }
}

/// Suspends until the task is cancelled: a handler that never answers by itself.
///
/// - Throws: `CancellationError`, always.
package func untilCancelled() async throws {
    while true { try await Task.sleep(for: .seconds(86_400)) }
}

/// Suspends like ``untilCancelled()``, without a sleep: the job of a cancelled sleep stays in memory until its time has
/// come. For tests of memory.
package func untilCancelledWithoutATrace() async throws {
    let (stream, continuation) = AsyncStream.makeStream(of: Never.self)
    for await _ in stream {}
    withExtendedLifetime(continuation) {}
    throw CancellationError()
}
