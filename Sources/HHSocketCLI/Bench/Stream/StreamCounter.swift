// SPDX-License-Identifier: Apache-2.0
import Atomics

/// The number of items of one stream, which one task counts and others read.
///
/// It must be cheap, since its cost is measured with each item.
final class StreamCounter: Sendable {
    private let count = ManagedAtomic(0)

    var value: Int { self.count.load(ordering: .relaxed) }

    /// Counts an item. Called by one task only, so nothing comes between the two steps.
    @inline(__always)
    func add() { self.count.store(self.count.load(ordering: .relaxed) &+ 1, ordering: .relaxed) }
}
