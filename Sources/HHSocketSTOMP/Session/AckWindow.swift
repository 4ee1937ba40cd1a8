// SPDX-License-Identifier: Apache-2.0
import DequeModule

/// The messages of one subscription that one connection has delivered, and which of them are settled: one byte for
/// each from the oldest that is not on.
struct AckWindow: Sendable {
    /// The number of the first message in `isOpen`; all before it are settled.
    private var base: UInt64 = 0
    private var isOpen: Deque<Bool> = []
    /// The number of messages that are not settled.
    private(set) var openCount = 0

    /// The number of messages that are tracked.
    var length: Int { self.isOpen.count }

    /// Counts a message that was delivered.
    ///
    /// - Returns: Its number.
    mutating func deliver() -> UInt64 {
        self.isOpen.append(true)
        self.openCount += 1
        return self.base + UInt64(self.isOpen.count) - 1
    }

    /// Settles a message, or all up to it.
    ///
    /// - Parameter isCumulative: Whether those before it are settled with it.
    /// - Returns: The numbers of those that were open before; empty if that one was settled already.
    mutating func settle(_ number: UInt64, isCumulative: Bool) -> [UInt64] {
        guard number >= self.base, number - self.base < UInt64(self.isOpen.count) else { return [] }
        let last = Int(number - self.base)
        guard self.isOpen[last] else { return [] }
        var settled: [UInt64] = []
        for index in (isCumulative ? 0 : last)...last where self.isOpen[index] {
            self.isOpen[index] = false
            settled.append(self.base + UInt64(index))
        }
        self.openCount -= settled.count
        return settled
    }

    /// Whether a message after this one is settled.
    func hasSettled(after number: UInt64) -> Bool {
        guard number + 1 >= self.base else { return true }
        return self.isOpen.dropFirst(Int(number + 1 - self.base)).contains(false)
    }

    /// Reopens messages that were settled by a transaction, or by a frame that was not sent.
    mutating func reopen(_ numbers: [UInt64]) {
        if let first = numbers.min(), first < self.base {
            // All before the base are settled.
            self.isOpen.insert(contentsOf: repeatElement(false, count: Int(self.base - first)), at: 0)
            self.base = first
        }
        for number in numbers where number - self.base < UInt64(self.isOpen.count) {
            let index = Int(number - self.base)
            guard !self.isOpen[index] else { continue }
            self.isOpen[index] = true
            self.openCount += 1
        }
    }

    /// Forgets the oldest that are settled for good.
    ///
    /// - Parameter first: The first that may be opened again; nil if none may.
    mutating func trim(before first: UInt64?) {
        while let isOpen = self.isOpen.first, !isOpen, first.map({ self.base < $0 }) ?? true {
            self.isOpen.removeFirst()
            self.base += 1
        }
    }
}
