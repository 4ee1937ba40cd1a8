// SPDX-License-Identifier: Apache-2.0
#if Development
import NIOConcurrencyHelpers
import NIOPosix

/// Submissions from other threads to a socket's own thread, for the package `Benchmarks`.
///
/// The workload is in this module because submissions are not public: other modules can submit only as part of a call
/// or a write, which cost many times as much.
@_spi(Benchmarks) public final class SubmissionWorkload: Sendable {
    /// Counts the submissions still to be performed.
    private final class Work: SubmittedWork, @unchecked Sendable {
        // Proof of Sendable: the count is accessed only on the socket's thread.
        private var remaining: Int
        private let done: @Sendable () -> Void

        init(count: Int, done: @escaping @Sendable () -> Void) {
            self.remaining = count
            self.done = done
        }

        func performOnSocketThread(_ operation: UInt8, in turn: inout Turn) {
            self.remaining -= 1
            if self.remaining == 0 { self.done() }
        }
    }

    private let driver: Driver
    private let submitters: MultiThreadedEventLoopGroup

    /// A socket that never connects, and threads that submit to it. They wait until ``submit(_:)``.
    public init(threads: Int) {
        let rules = FrameRules(SocketConfiguration(servers: []))
        self.driver = Driver(configuration: rules.configuration, maker: FrameConnector(rules))
        self.submitters = MultiThreadedEventLoopGroup(numberOfThreads: threads)
    }

    deinit {
        self.driver.invalidate()
        self.submitters.shutdownGracefully(queue: .global()) { _ in
            // Fails only if they were shut down before.
        }
    }

    /// Makes each thread submit `count` times, and returns when all submissions have run on the socket thread.
    public func submit(_ count: Int) {
        let submitters = Array(self.submitters.makeIterator())
        // The measurement is synchronous, so it waits for a lock.
        let isDone = ConditionLock(value: false)
        let work = Work(count: count * submitters.count) {
            isDone.lock()
            isDone.unlock(withValue: true)
        }
        for submitter in submitters {
            submitter.execute { [driver] in
                for _ in 0..<count { driver.loop.submit(.work(work, 0)) }
            }
        }
        isDone.lock(whenValue: true)
        isDone.unlock()
    }
}
#endif
