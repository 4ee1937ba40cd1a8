import NIOConcurrencyHelpers
import NIOPosix

/// Where handlers run that block. The threads begin with the first such handler.
final class BlockingThreads: Sendable {
    private let pool: NIOThreadPool
    private let hasBegun = NIOLockedValueBox(false)

    init(count: Int) {
        self.pool = NIOThreadPool(numberOfThreads: max(1, count))
    }

    func run<Result: Sendable>(_ body: @escaping @Sendable () throws -> Result) async throws -> Result {
        self.hasBegun.withLockedValue {
            if !$0 { self.pool.start() }
            $0 = true
        }
        return try await self.pool.runIfActive(body)
    }

    /// The threads end when what they are doing has. That is not waited for: it may be never.
    func shutdown() {
        guard self.hasBegun.withLockedValue({ $0 }) else { return }
        self.pool.shutdownGracefully { _ in }
    }
}
