// SPDX-License-Identifier: Apache-2.0
import DequeModule
import NIOConcurrencyHelpers
import NIOPosix

/// The work on one file: jobs that run one after the other, on a thread that may block, in the order in which they were
/// submitted.
///
/// Each is a separate job for the threads, so that other files have their turn as well.
final class FileWork: Sendable {
    typealias Job = @Sendable () -> Void

    private struct State {
        var jobs: Deque<Job> = []
        var isRunning = false
    }

    private let pool: NIOThreadPool
    private let state = NIOLockedValueBox(State())

    init(_ pool: NIOThreadPool) {
        self.pool = pool
    }

    /// Runs a job after earlier ones. If the threads have ended it runs where it is submitted, because its result is
    /// awaited.
    func submit(_ job: @escaping Job) {
        let begins = self.state.withLockedValue { state in
            state.jobs.append(job)
            defer { state.isRunning = true }
            return !state.isRunning
        }
        if begins { self.pool.submit { _ in self.runNext() } }
    }

    private func runNext() {
        let job = self.state.withLockedValue { $0.jobs.popFirst() }
        job?()
        let continues = self.state.withLockedValue { state in
            state.isRunning = !state.jobs.isEmpty
            return state.isRunning
        }
        if continues { self.pool.submit { _ in self.runNext() } }
    }
}
