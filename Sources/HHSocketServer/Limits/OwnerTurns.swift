// SPDX-License-Identifier: Apache-2.0
import DequeModule

/// Owners that take turns, such as principals or connections. No locks and no clock.
///
/// Everything takes a constant time on average.
struct OwnerTurns: Sendable {
    private struct Turn: Sendable {
        var owner: UInt64
        /// Distinguishes it from one of before the owner left.
        var number: UInt64
    }

    private var numbers: [UInt64: UInt64] = [:]
    /// The turns, the next first, including those of owners that have left.
    private var turns: Deque<Turn> = []
    private var lastNumber: UInt64 = 0

    /// The number of places in memory.
    var placeCount: Int { self.turns.count }

    /// The number that an owner has until it leaves, and no other owner has; nil if it takes no turns.
    func number(of owner: UInt64) -> UInt64? { self.numbers[owner] }

    /// Lets an owner take turns, after all others, unless it does already.
    ///
    /// - Returns: Its number.
    @discardableResult
    mutating func enter(_ owner: UInt64) -> UInt64 {
        if let number = self.numbers[owner] { return number }
        self.lastNumber += 1
        self.numbers[owner] = self.lastNumber
        self.turns.append(Turn(owner: owner, number: self.lastNumber))
        return self.lastNumber
    }

    /// Returns the owner whose turn it is, which has its next one after all others; nil if there is none.
    mutating func next() -> UInt64? {
        while let turn = self.turns.popFirst() {
            guard self.numbers[turn.owner] == turn.number else { continue }
            self.turns.append(turn)
            return turn.owner
        }
        return nil
    }

    /// Removes an owner.
    mutating func remove(_ owner: UInt64) {
        self.numbers[owner] = nil
        // Otherwise owners that come and go would leave turns behind without a bound.
        guard self.turns.count > 2 * self.numbers.count + 16 else { return }
        let numbers = self.numbers
        self.turns.removeAll { numbers[$0.owner] != $0.number }
    }
}
