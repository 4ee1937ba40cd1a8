// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers
import NIOPosix

/// Has event loops look after their connections from time to time, from a thread of its own.
///
/// Not by timers of the event loops: while one is set, each turn of a loop reads the clock three times. And not by
/// Dispatch: on Linux, while work waits in one of its global queues, it opens a file in `/proc` for each of its threads
/// every second, and ends the process (SIGILL in `_dispatch_workq_monitor_pools`) if it cannot, such as when no file
/// descriptor is left.
final class SweepClock: Sendable {
    private let threads = NIOThreadPool(numberOfThreads: 1)
    private let isOver = ConditionLock(value: false)

    /// - Parameters:
    ///   - loops: Notified until ``end()``.
    ///   - others: Called as often, on the clock's thread.
    init(_ loops: [ServerLoop], every interval: Double, others: @escaping @Sendable () -> Void) {
        self.threads.start()
        self.threads.submit { [isOver] _ in
            while !isOver.lock(whenValue: true, timeoutSeconds: interval) {
                for loop in loops { loop.sweepIsDue() }
                others()
            }
            isOver.unlock()
        }
    }

    func end() {
        self.isOver.lock()
        self.isOver.unlock(withValue: true)
        self.threads.shutdownGracefully { _ in }
    }
}
