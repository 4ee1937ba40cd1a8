// SPDX-License-Identifier: Apache-2.0
package import Foundation

/// A task's `Progress`, and the scheduling of its updates.
package final class TaskProgress: @unchecked Sendable {
    // Proof of Sendable: the flag is accessed only under the task's lock. `progress` is changed where the task's
    // callbacks run, and before it is handed out; Foundation's own rules determine who may read it.
    package struct Units {
        package var completed: Int
        package var total: Int

        package init(completed: Int, total: Int) {
            self.completed = completed
            self.total = total
        }
    }

    package let progress: Progress
    /// Whether an update is scheduled on the callback queue.
    private var isScheduled = false

    package init(cancel: @escaping @Sendable () -> Void) {
        self.progress = Progress(parent: nil, userInfo: nil)
        self.progress.isCancellable = true
        self.progress.isPausable = false
        self.progress.cancellationHandler = cancel
    }

    /// Whether an update must be scheduled. False if one is already scheduled, which will include the latest change.
    package func mustSchedule() -> Bool {
        defer { self.isScheduled = true }
        return !self.isScheduled
    }

    /// Records that the scheduled update has begun.
    package func begin() -> TaskProgress {
        self.isScheduled = false
        return self
    }

    package func update(to units: Units) {
        if self.progress.totalUnitCount != Int64(units.total) { self.progress.totalUnitCount = Int64(units.total) }
        if self.progress.completedUnitCount != Int64(units.completed) {
            self.progress.completedUnitCount = Int64(units.completed)
        }
    }
}
