// SPDX-License-Identifier: Apache-2.0
import DequeModule

/// Decides which authentications run, which wait, and which are refused.
///
/// A limited number runs. Others wait, and addresses alternate: one address with many does not delay the others. When
/// too many wait, one of the address with most is removed, and none of an address that would have as many is added. An
/// abandoned authentication keeps its slot as long as it runs, so those that ignore their cancellation cannot
/// accumulate.
struct AuthenticationLine: Sendable {
    /// Names one authentication.
    typealias Ticket = UInt64
    /// Nil for clients without an address, which share a place.
    typealias Origin = ClientAddress?

    /// The decision on a new authentication.
    enum Arrival: Hashable, Sendable {
        case runs(Ticket)
        /// It waits; if there were too many, instead of another one, which is refused.
        case waits(Ticket, insteadOf: Ticket?)
        case refused
    }

    /// The authentications that wait, from one address.
    private struct Queue: Sendable {
        /// The tickets, the oldest first, possibly including abandoned ones.
        var tickets: Deque<Ticket> = []
        /// The number of waiting authentications.
        var count = 0
    }

    private let maximumRunning: Int
    private let maximumWaiting: Int
    private var lastTicket: Ticket = 0
    private(set) var runningCount = 0
    private var waiting: [Ticket: Origin] = [:]
    /// A queue for each address in `order`, even if none of its authentications is still waiting.
    private var queues: [Origin: Queue] = [:]
    /// Each address once, the next one first.
    private var order: Deque<Origin> = []
    /// The addresses by the number of their waiting authentications.
    private var origins: [Int: Set<Origin>] = [:]
    /// The largest number that waits of one address.
    private var largest = 0
    /// The number of addresses with waiting authentications.
    private var originCount = 0

    /// - Parameters:
    ///   - maximumRunning: The number that runs; 1 at least.
    ///   - maximumWaiting: The number that waits.
    init(maximumRunning: Int, maximumWaiting: Int) {
        self.maximumRunning = max(1, maximumRunning)
        self.maximumWaiting = max(0, maximumWaiting)
    }

    var waitingCount: Int { self.waiting.count }
    /// The number of entries for waiting authentications and their addresses.
    var entryCount: Int { self.order.count + self.queues.values.reduce(0) { $0 + $1.tickets.count } }

    // MARK: Events

    mutating func arrive(from origin: Origin) -> Arrival {
        self.lastTicket += 1
        let ticket = self.lastTicket
        guard self.runningCount >= self.maximumRunning else {
            self.runningCount += 1
            return .runs(ticket)
        }
        guard self.maximumWaiting > 0 else { return .refused }
        var displaced: Ticket?
        if self.waiting.count >= self.maximumWaiting {
            let own = self.queues[origin]?.count ?? 0
            guard own + 1 < self.largest, let worst = self.origins[self.largest]?.first,
                let last = self.removeLast(of: worst)
            else { return .refused }
            displaced = last
        }
        self.append(ticket, from: origin)
        return .waits(ticket, insteadOf: displaced)
    }

    /// One that ran has returned.
    ///
    /// - Returns: The next, which runs from now on.
    mutating func returned() -> Ticket? {
        guard let next = self.removeNext() else {
            self.runningCount -= 1
            return nil
        }
        return next
    }

    /// The result of an authentication is no longer needed.
    ///
    /// - Returns: Whether it waited, and has been removed; one that runs continues until it returns.
    mutating func giveUp(_ ticket: Ticket) -> Bool {
        guard let origin = self.waiting.removeValue(forKey: ticket) else { return false }
        self.changeCount(of: origin, by: -1)
        self.removeDead(of: origin)
        return true
    }

    // MARK: Those that wait

    private mutating func append(_ ticket: Ticket, from origin: Origin) {
        self.waiting[ticket] = origin
        if self.queues[origin] == nil { self.order.append(origin) }
        self.queues[origin, default: Queue()].tickets.append(ticket)
        self.changeCount(of: origin, by: 1)
    }

    private mutating func removeNext() -> Ticket? {
        while let origin = self.order.popFirst() {
            while let ticket = self.queues[origin]?.tickets.popFirst() {
                guard self.waiting.removeValue(forKey: ticket) != nil else { continue }
                self.changeCount(of: origin, by: -1)
                if self.queues[origin]?.count == 0 {
                    self.queues[origin] = nil
                } else {
                    self.order.append(origin)
                }
                return ticket
            }
            self.queues[origin] = nil
        }
        return nil
    }

    private mutating func removeLast(of origin: Origin) -> Ticket? {
        while let ticket = self.queues[origin]?.tickets.popLast() {
            guard self.waiting.removeValue(forKey: ticket) != nil else { continue }
            self.changeCount(of: origin, by: -1)
            return ticket
        }
        return nil
    }

    private mutating func changeCount(of origin: Origin, by change: Int) {
        guard let old = self.queues[origin]?.count else { return }
        let new = old + change
        self.queues[origin]?.count = new
        if old > 0 {
            self.origins[old]?.remove(origin)
            if self.origins[old]?.isEmpty == true { self.origins[old] = nil }
        }
        if new > 0 { self.origins[new, default: []].insert(origin) }
        if old == 0, new > 0 { self.originCount += 1 } else if old > 0, new == 0 { self.originCount -= 1 }
        self.largest = max(self.largest, new)
        while self.largest > 0, self.origins[self.largest] == nil { self.largest -= 1 }
    }

    /// Removes abandoned tickets, once they outnumber the others: then this costs no more than adding them did.
    private mutating func removeDead(of origin: Origin) {
        if let queue = self.queues[origin], queue.tickets.count > 2 * queue.count + 16 {
            let waiting = self.waiting
            self.queues[origin]?.tickets.removeAll { waiting[$0] == nil }
        }
        if self.order.count > 2 * self.originCount + 16 {
            let queues = self.queues
            self.order.removeAll { queues[$0]?.count == 0 }
            self.queues = queues.filter { $0.value.count > 0 }
        }
    }
}
