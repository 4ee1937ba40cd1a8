// SPDX-License-Identifier: Apache-2.0
import Atomics

/// The number of requests in flight of one kind, such as of a type or of an identity. Any thread.
final class InFlightQuota: Sendable {
    private let maximum: Int
    private let inFlight = ManagedAtomic(0)

    init(maximum: Int) {
        self.maximum = maximum
    }

    var count: Int { self.inFlight.load(ordering: .sequentiallyConsistent) }

    /// Admits one more request, until ``finished()``; false if the limit is reached.
    func start() -> Bool {
        guard self.inFlight.loadThenWrappingIncrement(ordering: .sequentiallyConsistent) >= self.maximum else {
            return true
        }
        self.inFlight.wrappingDecrement(ordering: .sequentiallyConsistent)
        return false
    }

    /// Returns whether that was the last one.
    @discardableResult
    func finished() -> Bool {
        self.inFlight.wrappingDecrementThenLoad(ordering: .sequentiallyConsistent) == 0
    }
}
