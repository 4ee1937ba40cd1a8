// SPDX-License-Identifier: Apache-2.0
/// A part of a Swift task, or of an actor's work, that waits for a socket's thread.
package struct SocketJob: Sendable, TurnHandler {
    // Two executors, not one that is both: a job of a task that ran as an actor's would be enqueued once more at its
    // first `await`, for the runtime would think it isolated.
    enum Executor: Sendable {
        // Unmanaged: the task or the actor retains its executor as long as it has jobs.
        case task(Unmanaged<SocketExecutor>)
        case serial(Unmanaged<SocketExecutor.Serial>)
    }

    private let job: UnownedJob
    private let executor: Executor
    #if DEBUG
    private let watch: JobWatch?
    #endif

    init(_ job: UnownedJob, _ executor: Executor, on loop: SocketLoop) {
        self.job = job
        self.executor = executor
        #if DEBUG
        self.watch = loop.jobWatch
        #endif
    }

    package static func run(at pointer: UnsafeMutableRawPointer) {
        pointer.takeHandler(Self.self).run()
    }

    /// Runs it here and now, until it suspends or ends.
    func run() {
        #if DEBUG
        self.watch?.jobBegins()
        defer { self.watch?.jobEnded() }
        #endif
        switch self.executor {
        case .task(let executor):
            guard #available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *) else { return }
            self.job.runSynchronously(on: executor._withUnsafeGuaranteedRef { $0.asUnownedTaskExecutor() })
        case .serial(let executor):
            guard #available(macOS 14, iOS 17, tvOS 17, watchOS 10, visionOS 1, *) else { return }
            self.job.runSynchronously(on: executor._withUnsafeGuaranteedRef { $0.asUnownedSerialExecutor() })
        }
    }
}
