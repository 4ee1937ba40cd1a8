// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import NIOCore

/// The operations that have not ended, with the time that each has. On the socket's thread.
struct STOMPOperations {
    private var receipts: [String: STOMPOperation] = [:]
    /// All that have a time, in the order in which it is up; those that have ended stay until most have.
    private var deadlines: Deque<(time: NIODeadline, operation: STOMPOperation)> = []
    /// The number of operations that have not ended.
    private(set) var count = 0

    /// The time at which the next operation times out; nil if there is none.
    var nextDeadline: NIODeadline? { self.deadlines.first?.time }

    /// - Parameter deadline: Not earlier than those of the other operations.
    mutating func add(_ operation: STOMPOperation, until deadline: NIODeadline) {
        self.count += 1
        if let receipt = operation.receipt { self.receipts[receipt] = operation }
        self.deadlines.append((deadline, operation))
    }

    /// Ends an operation.
    mutating func complete(_ operation: STOMPOperation, _ result: Result<Void, SocketError>) {
        guard operation.isOpen else { return }
        self.count -= 1
        if let receipt = operation.receipt { self.receipts[receipt] = nil }
        operation.complete(result)
        while let first = self.deadlines.first, !first.operation.isOpen { self.deadlines.removeFirst() }
        if self.deadlines.count > 2 * self.count + 64 { self.deadlines.removeAll { !$0.operation.isOpen } }
    }

    /// The operation that awaits this receipt.
    func awaiting(_ receipt: String) -> STOMPOperation? { self.receipts[receipt] }

    /// The operations whose frame was sent and whose receipt has not arrived.
    var unconfirmed: [STOMPOperation] { self.receipts.values.filter(\.hasLeft) }

    /// Returns the operations that have timed out.
    func late(now: NIODeadline) -> [STOMPOperation] {
        self.deadlines.prefix { $0.time <= now }.map(\.operation).filter(\.isOpen)
    }

    /// All, in order.
    var all: [STOMPOperation] { self.deadlines.map(\.operation).filter(\.isOpen) }
}
