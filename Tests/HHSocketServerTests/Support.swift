import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import TestSupport

@testable import HHSocketServer

extension HostileClient {
    /// A client of a server that should be running.
    static func connect(to address: Endpoint?, reads: Bool = true) async throws -> HostileClient {
        guard let address else { throw TimedOut(description: "the server does not run") }
        return try await HostileClient(to: address, reads: reads)
    }
}

extension SocketServer.Configuration {
    /// One on which everything but these limits is as by default.
    static func limited(_ change: (inout ServerLimits) -> Void) -> Self {
        var configuration = Self()
        change(&configuration.limits)
        return configuration
    }
}

/// Something that happens once, and that tests wait for.
final class Signal: Sendable {
    private let stream: AsyncStream<Void>
    private let continuation: AsyncStream<Void>.Continuation

    init() {
        (self.stream, self.continuation) = AsyncStream.makeStream()
    }

    func fire() { self.continuation.finish() }

    func wait(within time: Duration = .seconds(120)) async throws {
        try await withThrowingTaskGroup { group in
            group.addTask { for await _ in self.stream {} }
            group.addTask {
                try await Task.sleep(for: time)
                throw TimedOut(description: "it did not happen within \(time)")
            }
            try await group.next()
            group.cancelAll()
        }
        try Task.checkCancellation()
    }
}

/// Counts from any thread.
final class Counter: Sendable {
    private let box = NIOLockedValueBox(0)
    var value: Int { self.box.withLockedValue { $0 } }

    @discardableResult
    func increment() -> Int {
        self.box.withLockedValue {
            $0 += 1
            return $0
        }
    }
}

/// Returns once `condition` holds.
func until(within time: Duration = .seconds(120), _ condition: @Sendable () async throws -> Bool) async throws {
    let deadline = ContinuousClock.now + time
    while try await !condition() {
        guard ContinuousClock.now < deadline else { throw TimedOut(description: "it did not happen within \(time)") }
        await Task.yield()
    }
}

/// Runs `body` with a server that listens, and closes it at the end.
func withServer<Result: Sendable>(
    _ configuration: SocketServer.Configuration = .init(),
    _ router: Router,
    _ body: (SocketServer) async throws -> Result
) async throws -> Result {
    let server = SocketServer(configuration: configuration, router: router)
    try await server.start()
    do {
        let result = try await body(server)
        await server.shutdown(gracePeriod: .zero)
        return result
    } catch {
        await server.shutdown(gracePeriod: .zero)
        throw error
    }
}
