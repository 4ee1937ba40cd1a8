// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers
import NIOPosix

/// Threads for work that may block: handlers, and lines for the log. They start with the first piece of work, and serve
/// principals in turn, and the connections of each.
package final class BlockingThreads: Sendable {
    private enum Phase { case idle, running, over }

    /// A piece of work. `isActive`: whether the threads still run.
    private typealias Work = @Sendable (_ isActive: Bool) -> Void
    private typealias Queue = PrincipalQueue<Work>

    private struct State {
        var phase = Phase.idle
        var queue = Queue()
        /// The number of threads that are at work, or about to be.
        var workers = 0
    }

    private let pool: NIOThreadPool
    private let count: Int
    private let state = NIOLockedValueBox(State())

    package init(count: Int) {
        self.count = max(1, count)
        self.pool = NIOThreadPool(numberOfThreads: self.count)
    }

    /// The number of pieces of work that wait for a thread.
    package var waitingCount: Int { self.state.withLockedValue { $0.queue.count } }
    /// Whether no work waits or is being done.
    var isIdle: Bool { self.state.withLockedValue { $0.workers == 0 } }

    /// Runs `body` on a thread, when it is the turn of `principal`, among its work that of `connection`, and of `body`
    /// among that.
    ///
    /// - Throws: The error of `body`; `CancellationError` if the task was cancelled before `body` began, or the threads
    ///   have ended.
    func run<Result: Sendable>(
        for principal: UInt64,
        _ connection: UInt64,
        _ body: @escaping @Sendable () throws -> Result
    ) async throws -> Result {
        let ticket = NIOLockedValueBox<Queue.Ticket?>(nil)
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { (caller: CheckedContinuation<Result, any Error>) in
                let work: Work = { isActive in
                    caller.resume(with: Swift.Result { if isActive { try body() } else { throw CancellationError() } })
                }
                self.begin(work, of: .init(principal: principal, connection: connection), ticket)
            }
        } onCancel: {
            let work: Work? = self.state.withLockedValue { state in
                ticket.withLockedValue { $0 }.flatMap { state.queue.withdraw($0) }
            }
            work?(false)
        }
    }

    /// Runs work later, in the order of submission for `owner`. If the threads have ended it is run by the caller.
    package func submit(for owner: UInt64 = 0, _ body: @escaping @Sendable () -> Void) {
        self.begin({ _ in body() }, of: .init(principal: owner))
    }

    /// - Parameter ticket: Receives the entry by which the work can be withdrawn; nil if it belongs to no task.
    private func begin(
        _ work: @escaping Work,
        of owner: Queue.Owner,
        _ ticket: NIOLockedValueBox<Queue.Ticket?>? = nil
    ) {
        enum Step { case queued, needsWorker, refused }
        let step: Step = self.state.withLockedValue { state in
            // Work after the end must not start threads, which would never end.
            guard state.phase != .over else { return .refused }
            if state.phase == .idle {
                self.pool.start()
                state.phase = .running
            }
            // If it is cancelled later, the cancelling code finds the ticket.
            guard ticket == nil || !Task.isCancelled else { return .refused }
            let entry = state.queue.append(work, of: owner)
            ticket?.withLockedValue { $0 = entry }
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

    /// Performs waiting work until there is none.
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

    /// Ends the threads after their current work. That is not awaited: it may never end.
    package func shutdown() {
        let isRunning = self.state.withLockedValue { state in
            defer { state.phase = .over }
            return state.phase == .running
        }
        if isRunning { self.pool.shutdownGracefully { _ in } }
    }
}
