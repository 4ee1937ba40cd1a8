// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOConcurrencyHelpers
import NIOCore
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
    private let interval: TimeAmount
    private let time: SocketTime
    /// The next sweep, where the time is not the system's.
    private let alarm = NIOLockedValueBox<(next: TimeAlarm?, isOver: Bool)>((nil, false))
    private let loops: [ServerLoop]
    private let sweep: @Sendable () -> Void

    /// - Parameters:
    ///   - loops: Notified until ``end()``.
    ///   - others: Called as often, on the clock's thread.
    init(
        _ loops: [ServerLoop],
        every interval: TimeAmount,
        time: SocketTime,
        others: @escaping @Sendable () -> Void
    ) {
        self.loops = loops
        self.interval = interval
        self.time = time
        self.sweep = {
            for loop in loops { loop.sweepIsDue() }
            others()
        }
        if time.isSystem { self.start() } else { self.setAlarm() }
    }

    private func start() {
        self.threads.start()
        self.threads.submit { [isOver, sweep, interval] _ in
            let seconds = Double(interval.nanoseconds) / 1e9
            while !isOver.lock(whenValue: true, timeoutSeconds: seconds) { sweep() }
            isOver.unlock()
        }
    }

    private func setAlarm() {
        self.alarm.withLockedValue { alarm in
            guard !alarm.isOver else { return }
            alarm.next = self.time.alarm(in: self.interval) { [weak self] in
                guard let self else { return }
                self.sweep()
                // The time passes after the sweep, not during it.
                for loop in self.loops { await loop.socketLoop.settle() }
                self.setAlarm()
            }
        }
    }

    func end() {
        self.alarm.withLockedValue { alarm in
            alarm.next?.cancel()
            alarm = (nil, true)
        }
        self.isOver.lock()
        self.isOver.unlock(withValue: true)
        self.threads.shutdownGracefully { _ in }
    }
}
