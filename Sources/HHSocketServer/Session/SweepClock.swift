// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers
import NIOPosix

/// Makes event loops check their connections periodically, from a dedicated thread.
///
/// It does not use timers of the event loops: while one is set, each turn of a loop reads the clock three times. It
/// does not use Dispatch: on Linux, while work waits in one of its global queues, it opens a file in `/proc` for each
/// of its threads every second, and ends the process (SIGILL in `_dispatch_workq_monitor_pools`) if it cannot, for
/// example when no file descriptor is left.
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
