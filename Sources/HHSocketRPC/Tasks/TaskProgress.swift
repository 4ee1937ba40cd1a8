package import Foundation

/// A task's `Progress`, and when it is to be changed.
package final class TaskProgress: @unchecked Sendable {
    // Proof of Sendable: the flag is touched under the task's lock alone. `progress` is changed where the task's
    // callbacks run, and before anybody else has it; Foundation's own rules say who may read it.
    package struct Units {
        package var completed: Int
        package var total: Int

        package init(completed: Int, total: Int) {
            self.completed = completed
            self.total = total
        }
    }

    package let progress: Progress
    /// Set while a change is on its way to where callbacks run.
    private var isScheduled = false

    package init(cancel: @escaping @Sendable () -> Void) {
        self.progress = Progress(parent: nil, userInfo: nil)
        self.progress.isCancellable = true
        self.progress.isPausable = false
        self.progress.cancellationHandler = cancel
    }

    /// Whether a change is to be put on its way: false where one is, which will see what is new too.
    package func mustSchedule() -> Bool {
        defer { self.isScheduled = true }
        return !self.isScheduled
    }

    /// The change has arrived.
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
