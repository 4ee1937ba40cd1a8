// SPDX-License-Identifier: Apache-2.0
import HHSocket

extension CallTable where Call: ~Copyable {
    /// The calls that wait for a connection, in the order in which they will be sent.
    ///
    /// A call that no longer waits, or waits elsewhere, leaves a stub. Its entry knows the number of its valid
    /// ticket.
    struct Line {
        private struct Ticket {
            var key: DispatchKey
            var number: UInt32
        }

        private var line: WaitingLine<Ticket>

        init(maximumCount: Int, maximumBytes: Int) {
            self.line = WaitingLine(maximumCount: maximumCount, maximumBytes: maximumBytes)
        }

        /// The number of tickets, including stubs.
        var length: Int { self.line.length }
        /// The number of calls that wait.
        var count: Int { self.line.count }
        /// The size of the calls that wait, in bytes.
        var bytes: Int { self.line.bytes }

        /// Whether one more call of this size may wait.
        func hasRoom(for bytes: Int) -> Bool { self.line.hasRoom(for: bytes) }

        /// Adds a call, whose entry knows that it waits.
        mutating func append(_ key: DispatchKey, _ priority: FramePriority, in calls: inout SlotTable<Entry>) {
            let ticket = Ticket(key: key, number: calls[key.index].nextTicket())
            let (bytes, isReturning) = (calls[key.index].bytes, calls[key.index].isReturning)
            self.line.append(ticket, priority, cost: bytes, isReturning: isReturning)
        }

        /// Moves a call that waits behind the others of this priority.
        mutating func move(_ key: DispatchKey, to priority: FramePriority, in calls: inout SlotTable<Entry>) {
            let ticket = Ticket(key: key, number: calls[key.index].nextTicket())
            let (bytes, isReturning) = (calls[key.index].bytes, calls[key.index].isReturning)
            self.line.move(ticket, to: priority, cost: bytes, isReturning: isReturning) { Self.isStub($0, calls) }
        }

        /// Removes and returns the first call that waits.
        mutating func popFirst(_ calls: borrowing SlotTable<Entry>) -> DispatchKey? {
            self.line.popFirst(unless: { Self.isStub($0, calls) })?.key
        }

        /// Removes a call of this size, which no longer waits: its ticket is a stub from now on.
        mutating func makeStub(bytes: Int, in calls: borrowing SlotTable<Entry>) {
            self.line.makeStub(cost: bytes) { Self.isStub($0, calls) }
        }

        /// Removes all tickets, which must be stubs.
        mutating func removeStubs() {
            self.line.removeStubs()
        }

        private static func isStub(_ ticket: Ticket, _ calls: borrowing SlotTable<Entry>) -> Bool {
            !calls.contains(ticket.key) || !calls[ticket.key.index].stands(at: ticket.number)
        }
    }
}
