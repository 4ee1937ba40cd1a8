// SPDX-License-Identifier: Apache-2.0
import Atomics

/// A sum that many threads change: each shard passes its changes on once they amount to a step, so that threads of
/// different shards rarely contend.
final class ShardedSum: Sendable {
    /// Two cache lines, which processors fetch together.
    private static let stride = 128

    /// Proof of `nonisolated(unsafe)`: the pointer does not change, and its memory holds only atomics.
    private nonisolated(unsafe) let memory: UnsafeMutableRawPointer
    private let count: Int
    private let step: Int
    private let total = ManagedAtomic(0)

    /// - Parameter step: The largest difference of one shard that ``value`` may lack.
    init(shards count: Int, step: Int) {
        self.count = max(1, count)
        self.step = max(1, step)
        self.memory = .allocate(byteCount: self.count * Self.stride, alignment: Self.stride)
        for shard in 0..<self.count {
            for slot in [self.slot(shard, 0), self.slot(shard, 1)] { slot.initialize(to: .init(0)) }
        }
    }

    deinit {
        for shard in 0..<self.count {
            for slot in [self.slot(shard, 0), self.slot(shard, 1)] {
                _ = slot.pointee.dispose()
                slot.deinitialize(count: 1)
            }
        }
        self.memory.deallocate()
    }

    private func slot(_ shard: Int, _ index: Int) -> UnsafeMutablePointer<UnsafeAtomic<Int>.Storage> {
        let size = MemoryLayout<UnsafeAtomic<Int>.Storage>.stride
        return (self.memory + shard * Self.stride + index * size)
            .assumingMemoryBound(to: UnsafeAtomic<Int>.Storage.self)
    }

    private func own(_ shard: Int) -> UnsafeAtomic<Int> { UnsafeAtomic(at: self.slot(shard, 0)) }
    /// The part of a shard's sum that was passed on.
    private func passed(_ shard: Int) -> UnsafeAtomic<Int> { UnsafeAtomic(at: self.slot(shard, 1)) }

    /// Adds to a shard's sum.
    ///
    /// - Returns: Whether ``value`` has changed.
    @discardableResult
    func add(_ change: Int, shard: Int) -> Bool {
        let own = self.own(shard).wrappingIncrementThenLoad(by: change, ordering: .relaxed)
        let passed = self.passed(shard)
        guard abs(own - passed.load(ordering: .relaxed)) >= self.step else { return false }
        let before = passed.exchange(own, ordering: .relaxed)
        self.total.wrappingIncrement(by: own - before, ordering: .relaxed)
        return true
    }

    /// The sum, short of less than a step for each shard.
    var value: Int { self.total.load(ordering: .relaxed) }

    /// The exact sum, for which every shard is read.
    var exactValue: Int {
        (0..<self.count).reduce(0) { $0 + self.own($1).load(ordering: .relaxed) }
    }
}
