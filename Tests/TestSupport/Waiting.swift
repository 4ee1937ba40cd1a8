package struct TimedOut: Error, CustomStringConvertible {
    package var description: String

    package init(description: String) {
        self.description = description
    }
}

/// How long a test waits for what must come. Long, because machines can be slow; nothing waits that long when it works.
package let patience = Duration.seconds(120)

/// Runs `body`, and fails if it takes longer than ``patience``.
package func withDeadline<T: Sendable>(
    _ what: String,
    _ body: @escaping @Sendable () async throws -> T
) async throws -> T {
    try await withThrowingTaskGroup(of: T.self) { group in
        group.addTask { try await body() }
        group.addTask {
            try await Task.sleep(for: patience)
            throw TimedOut(description: "\(what) did not happen within \(patience)")
        }
        defer { group.cancelAll() }
        guard let result = try await group.next() else { throw TimedOut(description: what) }
        return result
    }
}

/// The first value of `sequence` that `predicate` likes.
package func first<S: AsyncSequence & Sendable>(
    of sequence: S,
    _ what: String,
    where predicate: @escaping @Sendable (S.Element) -> Bool = { _ in true }
) async throws -> S.Element where S.Element: Sendable {
    try await withDeadline(what) {
        for try await element in sequence where predicate(element) { return element }
        throw TimedOut(description: "\(what): the sequence ended")
    }
}

/// Polls, for what sends no event.
package func eventually(_ what: String, _ condition: @escaping @Sendable () async -> Bool) async throws {
    try await withDeadline(what) {
        while !(await condition()) { try await Task.sleep(for: .milliseconds(2)) }
    }
}
