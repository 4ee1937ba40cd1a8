// SPDX-License-Identifier: Apache-2.0
/// The counts of the sessions of one event loop since they were last taken. On its thread, without a lock.
final class SessionCounts: @unchecked Sendable {
    // Proof of Sendable: once it is made it is accessed only on the event loop.

    private let counts: UnsafeMutableBufferPointer<Int>

    init() {
        self.counts = .allocate(capacity: ServerCounter.allCases.count)
        self.counts.initialize(repeating: 0)
    }

    deinit { self.counts.deallocate() }

    func count(_ counter: ServerCounter, by increment: Int = 1) { self.counts[counter.rawValue] &+= increment }

    /// Adds the counts to a sum, and sets them to zero.
    func move(to sum: inout ServerStatistics) {
        sum.add(UnsafeBufferPointer(self.counts))
        self.counts.update(repeating: 0)
    }

    var statistics: ServerStatistics {
        var statistics = ServerStatistics()
        statistics.add(UnsafeBufferPointer(self.counts))
        return statistics
    }
}
