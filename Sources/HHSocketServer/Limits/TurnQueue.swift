// SPDX-License-Identifier: Apache-2.0
import DequeModule

/// Work that waits: principals take turns, and in the turn of a principal its connections do. No locks and no clock.
struct TurnQueue<Element> {
    /// The client that some work is done for.
    struct Owner: Hashable, Sendable {
        /// Identifies its identity or its address.
        var principal: UInt64
        var connection: UInt64 = 0
    }

    /// The place of an element that waits.
    struct Ticket: Sendable {
        fileprivate var principal: UInt64
        fileprivate var turn: UInt64
        fileprivate var number: UInt64
    }

    fileprivate struct Line {
        /// Distinguishes it from a former one of the same principal.
        let turn: UInt64
        /// The work of its connections; at least one element.
        var queue = FairQueue<Element>()
    }

    private var lines: [UInt64: Line] = [:]
    /// The principals, the next first, including those whose line is gone.
    private var turns: Deque<(principal: UInt64, turn: UInt64)> = []
    private var lastTurn: UInt64 = 0
    /// The number of elements that wait.
    private(set) var count = 0

    /// Adds an element to the end of the line of its connection.
    ///
    /// - Returns: Its place, for ``withdraw(_:)``.
    mutating func append(_ element: Element, of owner: Owner) -> Ticket {
        self.count += 1
        var line = self.lines.removeValue(forKey: owner.principal) ?? self.makeLine(of: owner.principal)
        let number = line.queue.append(element, of: owner.connection)
        let ticket = Ticket(principal: owner.principal, turn: line.turn, number: number)
        self.lines[owner.principal] = line
        return ticket
    }

    private mutating func makeLine(of principal: UInt64) -> Line {
        self.lastTurn += 1
        self.turns.append((principal, self.lastTurn))
        return Line(turn: self.lastTurn)
    }

    /// Removes and returns the next element of the principal whose turn it is; nil if there is none.
    mutating func popFirst() -> Element? {
        while let (principal, turn) = self.turns.popFirst() {
            guard self.lines[principal]?.turn == turn, let element = self.lines[principal]?.queue.popFirst() else {
                continue
            }
            if !self.removedOne(of: principal) { self.turns.append((principal, turn)) }
            return element
        }
        return nil
    }

    /// Removes and returns an element; nil if it no longer waits.
    mutating func withdraw(_ ticket: Ticket) -> Element? {
        guard self.lines[ticket.principal]?.turn == ticket.turn,
            let element = self.lines[ticket.principal]?.queue.withdraw(ticket.number)
        else { return nil }
        if self.removedOne(of: ticket.principal), self.turns.count > 2 * self.lines.count + 16 {
            // Otherwise alternating additions and withdrawals would leave turns behind without a bound.
            let lines = self.lines
            self.turns.removeAll { lines[$0.principal]?.turn != $0.turn }
        }
        return element
    }

    /// Returns whether that was the principal's last one, so that its line has been removed.
    private mutating func removedOne(of principal: UInt64) -> Bool {
        self.count -= 1
        guard self.lines[principal]?.queue.count == 0 else { return false }
        self.lines[principal] = nil
        return true
    }
}

extension TurnQueue: Sendable where Element: Sendable {}
extension TurnQueue.Line: Sendable where Element: Sendable {}
