// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers

/// Work that other threads submit to the socket thread, without allocating a closure.
package protocol SubmittedWork: AnyObject, Sendable {
    /// Called once on the socket thread. `operation` is the submitted value, whose meaning the type defines.
    func performOnSocketThread(_ operation: UInt8, in turn: inout Turn)
}

/// One piece of work for the socket thread.
package enum Submission: Sendable {
    case work(any SubmittedWork, UInt8)
    case closure(@Sendable (inout Turn) -> Void)
    case job(SocketJob)
}

/// The only way from other threads to the socket thread: submissions run there in order, and a burst of them wakes the
/// thread once.
final class SubmissionQueue: Sendable {
    private struct State {
        var waiting: [Submission] = []
        /// Whether a wake-up is in progress that will take all waiting submissions.
        var isScheduled = false
        /// Threads that are about to wake the socket thread, which must not end under their hands.
        var wakers = 0
        var isClosed = false
        var whenIdle: (@Sendable () -> Void)?
    }

    enum Appended {
        /// A wake-up is already in progress.
        case waiting
        /// Wake the socket thread, then call ``woke()``.
        case mustWake
        /// The loop runs nothing more.
        case refused
    }

    private let state = NIOLockedValueBox(State())

    func append(_ submission: Submission) -> Appended {
        self.state.withLockedValue { state in
            guard !state.isClosed else { return .refused }
            state.waiting.append(submission)
            guard !state.isScheduled else { return .waiting }
            state.isScheduled = true
            state.wakers += 1
            return .mustWake
        }
    }

    func woke() {
        let whenIdle = self.state.withLockedValue { state -> (@Sendable () -> Void)? in
            state.wakers -= 1
            guard state.isClosed, state.wakers == 0 else { return nil }
            defer { state.whenIdle = nil }
            return state.whenIdle
        }
        whenIdle?()
    }

    /// Swaps all waiting submissions into `batch`, which must be empty; its storage is reused for the next ones.
    func take(into batch: inout [Submission]) {
        self.state.withLockedValue { state in
            swap(&state.waiting, &batch)
            state.isScheduled = false
        }
    }

    /// Removes the waiting jobs, and returns them.
    func removeJobs() -> [SocketJob] { self.state.withLockedValue { $0.waiting.removeJobs() } }

    /// Stops accepting submissions. `whenIdle` is called, on any thread, once no thread is about to wake the socket
    /// thread.
    func close(whenIdle: @escaping @Sendable () -> Void) {
        let isIdle = self.state.withLockedValue { state in
            state.isClosed = true
            if state.wakers > 0 { state.whenIdle = whenIdle }
            return state.wakers == 0
        }
        if isIdle { whenIdle() }
    }
}

extension [Submission] {
    /// Removes the jobs, and returns them.
    mutating func removeJobs() -> [SocketJob] {
        var jobs: [SocketJob] = []
        self.removeAll { submission in
            guard case .job(let job) = submission else { return false }
            jobs.append(job)
            return true
        }
        return jobs
    }
}
