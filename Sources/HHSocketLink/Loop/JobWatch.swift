// SPDX-License-Identifier: Apache-2.0
#if DEBUG
import Dispatch
import Logging
import NIOConcurrencyHelpers

/// Warns of a job that blocks a socket's thread while it does, since one that waits for an answer never returns. Only
/// in debug builds.
final class JobWatch: Sendable {
    /// The time that a job may block: 100 ms, which users notice.
    private static let limit = DispatchTimeInterval.milliseconds(100)

    private struct State {
        /// The number of jobs that have begun.
        var count: UInt64 = 0
        var isRunning = false
        var isTimerSet = false
    }

    private let logger: Logger
    private let state = NIOLockedValueBox(State())

    init(_ logger: Logger) {
        self.logger = logger
    }

    func jobBegins() {
        let count = self.state.withLockedValue { state -> UInt64? in
            state.count += 1
            state.isRunning = true
            defer { state.isTimerSet = true }
            return state.isTimerSet ? nil : state.count
        }
        if let count { self.setTimer(count) }
    }

    func jobEnded() {
        self.state.withLockedValue { $0.isRunning = false }
    }

    /// Checks after a while whether the same job is still running.
    private func setTimer(_ count: UInt64) {
        DispatchQueue.global().asyncAfter(deadline: .now() + Self.limit) {
            let (isBlocked, next) = self.state.withLockedValue { state -> (Bool, UInt64?) in
                let isBlocked = state.isRunning && state.count == count
                let next = state.isRunning && !isBlocked ? state.count : nil
                state.isTimerSet = next != nil
                return (isBlocked, next)
            }
            if isBlocked { self.warn() }
            if let next { self.setTimer(next) }
        }
    }

    private func warn() {
        self.logger.warning(
            """
            a Swift job has blocked the socket's thread for 100 ms and still does, so that nothing is sent or received; have it wait \
            by `await`, or run it on another executor
            """
        )
    }
}
#endif
