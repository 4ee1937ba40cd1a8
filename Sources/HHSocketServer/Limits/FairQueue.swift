// SPDX-License-Identifier: Apache-2.0
import DequeModule

/// Work that waits, in a queue for each of its owners, such as connections; owners alternate. No locks and no clock.
///
/// ``append(_:of:)`` and ``popFirst()`` take a constant time on average, and so does ``withdraw(_:)``.
struct FairQueue<Element> {
    private struct Line {
        /// The numbers of waiting elements, in order, including withdrawn ones.
        var numbers: Deque<UInt64> = []
        /// The number of elements that are still waiting; at least one.
        var count = 0
    }

    private var owners = RoundRobin()
    private var lines: [UInt64: Line] = [:]
    private var waiting: [UInt64: (element: Element, owner: UInt64)] = [:]
    /// The number of the last element.
    private(set) var lastNumber: UInt64 = 0

    /// The number of elements that wait.
    var count: Int { self.waiting.count }
    /// The number of entries in memory, including those of withdrawn elements.
    var slotCount: Int { self.lines.values.reduce(self.owners.slotCount) { $0 + $1.numbers.count } }

    /// Adds an element to the end of its owner's line.
    ///
    /// - Returns: Its number, for ``withdraw(_:)``.
    @discardableResult
    mutating func append(_ element: Element, of owner: UInt64) -> UInt64 {
        self.lastNumber += 1
        let number = self.lastNumber
        self.waiting[number] = (element, owner)
        self.owners.enter(owner)
        self.lines[owner, default: Line()].numbers.append(number)
        self.lines[owner]?.count += 1
        return number
    }

    /// Removes and returns the first element of the next owner; nil if there is none.
    mutating func popFirst() -> Element? {
        guard let owner = self.owners.next() else { return nil }
        while let number = self.lines[owner]?.numbers.popFirst() {
            guard let (element, _) = self.waiting.removeValue(forKey: number) else { continue }
            self.removedOne(of: owner)
            return element
        }
        return nil
    }

    /// Removes and returns an element; nil if it no longer waits.
    mutating func withdraw(_ number: UInt64) -> Element? {
        guard let (element, owner) = self.waiting.removeValue(forKey: number) else { return nil }
        self.removedOne(of: owner)
        // Otherwise alternating additions and withdrawals would leave numbers behind without a bound.
        if let line = self.lines[owner], line.numbers.count > 2 * line.count + 16 {
            let waiting = self.waiting
            self.lines[owner]?.numbers.removeAll { waiting[$0] == nil }
        }
        return element
    }

    private mutating func removedOne(of owner: UInt64) {
        self.lines[owner]?.count -= 1
        guard self.lines[owner]?.count == 0 else { return }
        self.lines[owner] = nil
        self.owners.remove(owner)
    }
}

extension FairQueue: Sendable where Element: Sendable {}
