import HHSocket
import HHSocketRPC
import Testing

struct TimedOut: Error, CustomStringConvertible {
    var description: String
}

/// How long a test waits for what must come. Long, because machines can be slow; nothing waits that long when it works.
let patience = Duration.seconds(30)

/// Runs `body`, and fails if it takes longer than ``patience``.
func withDeadline<T: Sendable>(
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
func first<S: AsyncSequence & Sendable>(
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
func eventually(_ what: String, _ condition: @escaping @Sendable () async -> Bool) async throws {
    try await withDeadline(what) {
        while !(await condition()) { try await Task.sleep(for: .milliseconds(2)) }
    }
}

extension SocketClient {
    /// A client of these servers that is connecting.
    static func connecting(
        to servers: Endpoint...,
        configure: (inout SocketClient.Configuration) -> Void = { _ in }
    ) -> SocketClient {
        var configuration = SocketClient.Configuration(servers: servers)
        configuration.socket.backoff.base = .milliseconds(20)
        configure(&configuration)
        let client = SocketClient(configuration: configuration)
        client.connect()
        return client
    }
}

/// The error that `body` throws.
func socketError(_ body: () async throws(SocketError) -> Void) async throws -> SocketError {
    do throws(SocketError) {
        try await body()
    } catch {
        return error
    }
    throw TimedOut(description: "nothing was thrown")
}
