// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers
import NIOPosix

/// Threads for work that may block: handlers, and lines for the log. They begin with the first piece of work, and serve
/// those who have given it in turn.
final class BlockingThreads: Sendable {
    private enum Phase { case idle, running, over }

    /// A piece of work. It is told whether the threads are there to do it.
    private typealias Work = @Sendable (_ isActive: Bool) -> Void

    private struct State {
        var phase = Phase.idle
        var queue = FairQueue<Work>()
        /// The number of threads that are at work, or about to be.
        var workers = 0
    }

    private let pool: NIOThreadPool
    private let count: Int
    private let state = NIOLockedValueBox(State())

    init(count: Int) {
        self.count = max(1, count)
        self.pool = NIOThreadPool(numberOfThreads: self.count)
    }

    /// The number of pieces of work that wait for a thread.
    var waitingCount: Int { self.state.withLockedValue { $0.queue.count } }

    /// Runs `body` on a thread, when it is the turn of `owner`, such as a connection, and of `body` among its work.
    ///
    /// - Throws: What `body` throws; `CancellationError` if the task was cancelled before `body` began, or the threads
    ///   have ended.
    func run<Result: Sendable>(
        for owner: UInt64,
        _ body: @escaping @Sendable () throws -> Result
    ) async throws -> Result {
        let ticket = NIOLockedValueBox<UInt64?>(nil)
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { (caller: CheckedContinuation<Result, any Error>) in
                let work: Work = { isActive in
                    caller.resume(with: Swift.Result { if isActive { try body() } else { throw CancellationError() } })
                }
                self.begin(work, of: owner, ticket)
            }
        } onCancel: {
            let work: Work? = self.state.withLockedValue { state in
                ticket.withLockedValue { $0 }.flatMap { state.queue.withdraw($0) }
            }
            work?(false)
        }
    }

    /// Runs it later, in the order of what was submitted for `owner`. When the threads have ended it is run where that
    /// was asked for.
    func submit(for owner: UInt64 = 0, _ body: @escaping @Sendable () -> Void) {
        self.begin({ _ in body() }, of: owner)
    }

    /// - Parameter ticket: Where to leave the number by which the work can be withdrawn; nil: it belongs to no task.
    private func begin(_ work: @escaping Work, of owner: UInt64, _ ticket: NIOLockedValueBox<UInt64?>? = nil) {
        enum Step { case queued, needsWorker, refused }
        let step: Step = self.state.withLockedValue { state in
            // Work that comes after the end must not begin threads that nobody ends.
            guard state.phase != .over else { return .refused }
            if state.phase == .idle {
                self.pool.start()
                state.phase = .running
            }
            // If it is cancelled later, who cancels it finds the ticket.
            guard ticket == nil || !Task.isCancelled else { return .refused }
            let number = state.queue.append(work, of: owner)
            ticket?.withLockedValue { $0 = number }
            guard state.workers < self.count else { return .queued }
            state.workers += 1
            return .needsWorker
        }
        switch step {
        case .queued: break
        case .refused: work(false)
        case .needsWorker: self.pool.submit { state in self.work(isActive: state == .active) }
        }
    }

    /// Does what waits until there is nothing.
    private func work(isActive: Bool) {
        while true {
            let next: (work: Work, isActive: Bool)? = self.state.withLockedValue { state in
                guard let work = state.queue.popFirst() else {
                    state.workers -= 1
                    return nil
                }
                return (work, state.phase == .running)
            }
            guard let next else { return }
            next.work(isActive && next.isActive)
        }
    }

    /// The threads end when what they are doing has. That is not waited for: it may be never.
    func shutdown() {
        let isRunning = self.state.withLockedValue { state in
            defer { state.phase = .over }
            return state.phase == .running
        }
        if isRunning { self.pool.shutdownGracefully { _ in } }
    }
}
