// SPDX-License-Identifier: Apache-2.0

/// Work that waits: principals alternate, and among the work of a principal its connections do. No locks and no clock.
struct PrincipalQueue<Element> {
    /// The client that some work is done for.
    struct Owner: Hashable, Sendable {
        /// Identifies its identity or its address.
        var principal: UInt64
        var connection: UInt64 = 0
    }

    /// Identifies an element that waits.
    struct Ticket: Sendable {
        fileprivate var principal: UInt64
        /// The number of the principal's line.
        fileprivate var line: UInt64
        fileprivate var number: UInt64
    }

    private var order = RoundRobin()
    /// The work of each principal's connections; at least one element.
    private var lines: [UInt64: FairQueue<Element>] = [:]
    /// The number of elements that wait.
    private(set) var count = 0

    /// Adds an element to the end of the line of its connection.
    ///
    /// - Returns: Its ticket, for ``withdraw(_:)``.
    mutating func append(_ element: Element, of owner: Owner) -> Ticket {
        self.count += 1
        return Ticket(
            principal: owner.principal,
            line: self.order.enter(owner.principal),
            number: self.lines[owner.principal, default: FairQueue()].append(element, of: owner.connection)
        )
    }

    /// Removes and returns the element of the next principal; nil if there is none.
    mutating func popFirst() -> Element? {
        guard let principal = self.order.next(), let element = self.lines[principal]?.popFirst() else { return nil }
        self.removedOne(of: principal)
        return element
    }

    /// Removes and returns an element; nil if it no longer waits.
    mutating func withdraw(_ ticket: Ticket) -> Element? {
        guard self.order.number(of: ticket.principal) == ticket.line,
            let element = self.lines[ticket.principal]?.withdraw(ticket.number)
        else { return nil }
        self.removedOne(of: ticket.principal)
        return element
    }

    private mutating func removedOne(of principal: UInt64) {
        self.count -= 1
        guard self.lines[principal]?.count == 0 else { return }
        self.lines[principal] = nil
        self.order.remove(principal)
    }
}

extension PrincipalQueue: Sendable where Element: Sendable {}
