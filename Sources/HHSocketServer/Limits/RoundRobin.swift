// SPDX-License-Identifier: Apache-2.0
import DequeModule

/// Owners that alternate, such as principals or connections. No locks and no clock.
///
/// Everything takes a constant time on average.
struct RoundRobin: Sendable {
    private struct Entry: Sendable {
        var owner: UInt64
        /// Distinguishes it from one of before the owner was removed.
        var number: UInt64
    }

    private var numbers: [UInt64: UInt64] = [:]
    /// The owners, the next first, including those that were removed.
    private var entries: Deque<Entry> = []
    private var lastNumber: UInt64 = 0

    /// The number of entries in memory.
    var slotCount: Int { self.entries.count }

    /// The number that an owner has until it is removed, and no other owner has; nil if it is not here.
    func number(of owner: UInt64) -> UInt64? { self.numbers[owner] }

    /// Adds an owner, behind all others, unless it is here already.
    ///
    /// - Returns: Its number.
    @discardableResult
    mutating func enter(_ owner: UInt64) -> UInt64 {
        if let number = self.numbers[owner] { return number }
        self.lastNumber += 1
        self.numbers[owner] = self.lastNumber
        self.entries.append(Entry(owner: owner, number: self.lastNumber))
        return self.lastNumber
    }

    /// Returns the next owner, which is behind all others then; nil if there is none.
    mutating func next() -> UInt64? {
        while let entry = self.entries.popFirst() {
            guard self.numbers[entry.owner] == entry.number else { continue }
            self.entries.append(entry)
            return entry.owner
        }
        return nil
    }

    /// Removes an owner.
    mutating func remove(_ owner: UInt64) {
        self.numbers[owner] = nil
        // Otherwise owners that come and go would accumulate entries without a bound.
        guard self.entries.count > 2 * self.numbers.count + 16 else { return }
        let numbers = self.numbers
        self.entries.removeAll { numbers[$0.owner] != $0.number }
    }
}
