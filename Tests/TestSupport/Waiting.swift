// SPDX-License-Identifier: Apache-2.0
// How tests wait. What can say that it has happened is waited for by `first(of:)`, `Watched` or a `Gate`; `eventually`
// asks again and again, for what sends no event. Each gives up after `patience`, and then says what did not happen, and
// where.

/// What a test waited for did not happen in time.
package struct TimedOut: Error, CustomStringConvertible {
    package var description: String

    init(_ what: String, _ reason: String, _ fileID: String, _ line: Int) {
        self.description = "\(what): \(reason) (\(fileID):\(line))"
    }
}

/// How long a test waits for what must come. Long, because machines can be slow; nothing waits that long when it works.
package let patience = Duration.seconds(120)

/// Runs `body`, and fails if it takes longer than `time`.
package func withDeadline<T: Sendable>(
    _ what: String,
    within time: Duration = patience,
    fileID: String = #fileID,
    line: Int = #line,
    _ body: @escaping @Sendable () async throws -> T
) async throws -> T {
    try await withThrowingTaskGroup(of: T?.self) { group in
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

/// The first value of `sequence` that `predicate` likes.
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

/// Asks every 2 ms until `condition` holds, for what sends no event.
package func eventually(
    _ what: String,
    within time: Duration = patience,
    fileID: String = #fileID,
    line: Int = #line,
    _ condition: @escaping @Sendable () async throws -> Bool
) async throws {
    try await withDeadline(what, within: time, fileID: fileID, line: line) {
        while !(try await condition()) { try await Task.sleep(for: .milliseconds(2)) }
    }
}

/// Asks every 2 ms until there is a value, and returns it.
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

/// Suspends until the task is cancelled: a handler that never answers by itself.
///
/// - Throws: `CancellationError`, always.
package func untilCancelled() async throws {
    while true { try await Task.sleep(for: .seconds(86_400)) }
}

/// Suspends as ``untilCancelled()`` does, and leaves nothing behind: the job of a long sleep stays in memory until its
/// time has come, though it was cancelled. For tests of memory.
package func untilCancelledWithoutATrace() async throws {
    let (stream, continuation) = AsyncStream.makeStream(of: Never.self)
    for await _ in stream {}
    withExtendedLifetime(continuation) {}
    throw CancellationError()
}
