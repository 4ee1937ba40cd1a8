// SPDX-License-Identifier: Apache-2.0
import Atomics
import NIOConcurrencyHelpers

/// Work that another thread may do in parallel. A thread that needs the result does the work itself if no thread has
/// begun, so that busy threads cannot wait for each other.
package final class SharedWork<Value: Sendable>: @unchecked Sendable {
    // Proof of Sendable: `work` is Sendable; `value` is touched by the thread that has set `hasBegun`, until it sets
    // `isDone`, and only read afterwards.
    private let hasBegun = ManagedAtomic(false)
    private let isDone = ConditionLock(value: false)
    private let work: @Sendable () -> Value
    private var value: Value?

    /// - Parameter work: The work. It is done at most once, by the first thread that calls ``begin()`` or ``finish()``.
    package init(_ work: @escaping @Sendable () -> Value) {
        self.work = work
    }

    /// Does the work, unless a thread has begun it.
    package func begin() {
        guard !self.hasBegun.exchange(true, ordering: .acquiringAndReleasing) else { return }
        self.value = self.work()
        self.isDone.lock()
        self.isDone.unlock(withValue: true)
    }

    /// Does the work unless a thread has begun it, and returns its result once it is done.
    package func finish() -> Value {
        self.begin()
        self.isDone.lock(whenValue: true)
        defer { self.isDone.unlock() }
        guard let value = self.value else { preconditionFailure("work that is done has a result") }
        return value
    }
}
