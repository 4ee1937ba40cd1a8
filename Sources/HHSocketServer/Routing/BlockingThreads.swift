import NIOConcurrencyHelpers
import NIOPosix

/// Threads for work that may block: handlers, and lines for the log. They begin with the first piece of work.
final class BlockingThreads: Sendable {
    private enum Phase { case idle, running, over }

    private let pool: NIOThreadPool
    private let phase = NIOLockedValueBox(Phase.idle)

    init(count: Int) {
        self.pool = NIOThreadPool(numberOfThreads: max(1, count))
    }

    func run<Result: Sendable>(_ body: @escaping @Sendable () throws -> Result) async throws -> Result {
        self.begin()
        return try await self.pool.runIfActive(body)
    }

    /// Runs it later, in the order of what was submitted. When the threads have ended it is run where that was asked
    /// for.
    func submit(_ body: @escaping @Sendable () -> Void) {
        self.begin()
        self.pool.submit { _ in body() }
    }

    private func begin() {
        self.phase.withLockedValue { phase in
            // Work that comes after the end must not begin threads that nobody ends.
            guard phase == .idle else { return }
            self.pool.start()
            phase = .running
        }
    }

    /// The threads end when what they are doing has. That is not waited for: it may be never.
    func shutdown() {
        let isRunning = self.phase.withLockedValue { phase in
            defer { phase = .over }
            return phase == .running
        }
        if isRunning { self.pool.shutdownGracefully { _ in } }
    }
}
