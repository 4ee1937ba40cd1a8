// SPDX-License-Identifier: Apache-2.0
import HHSocketServer

/// The threads of a store, as the place where the task of a put receives content: it is written and hashed by the
/// thread that has taken it, where each piece would otherwise change threads there and back.
@available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
final class StoreExecutor: TaskExecutor {
    private let threads: BlockingThreads
    private let owner: UInt64

    /// - Parameter owner: For whom the jobs run.
    init(_ threads: BlockingThreads, owner: UInt64) {
        self.threads = threads
        self.owner = owner
    }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        self.threads.submit(for: self.owner) { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
}
