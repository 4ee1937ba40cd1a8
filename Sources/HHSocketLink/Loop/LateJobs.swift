// SPDX-License-Identifier: Apache-2.0
import Dispatch
import NIOConcurrencyHelpers

/// Runs the jobs of a loop that has been closed: one after the other, on the system's threads.
final class LateJobs: Sendable {
    private struct State {
        /// The jobs that wait for the loop's last turn to end.
        var waiting: [SocketJob] = []
        /// Set once that has ended.
        var queue: DispatchQueue?
    }

    private let state = NIOLockedValueBox(State())

    /// Runs `job` when those before have run.
    func append(_ job: SocketJob) {
        self.state.withLockedValue { state in
            guard let queue = state.queue else { return state.waiting.append(job) }
            // Under the lock, for the order.
            queue.async { job.run() }
        }
    }

    /// The loop has stopped running jobs.
    func begin() {
        self.state.withLockedValue { state in
            guard state.queue == nil else { return }
            let queue = DispatchQueue(label: "HHSocket executor")
            for job in state.waiting { queue.async { job.run() } }
            state.waiting = []
            state.queue = queue
        }
    }
}
