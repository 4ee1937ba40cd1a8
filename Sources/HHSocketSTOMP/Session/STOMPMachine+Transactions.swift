// SPDX-License-Identifier: Apache-2.0
package import HHSocketLink

/// Transactions, which end with their connection.
extension STOMPMachine {
    struct Transaction: Sendable {
        /// The numbers of the messages that it settles, for each subscription: open again if it is aborted.
        var settled: [String: [UInt64]] = [:]
    }

    /// A transaction that one frame ends, to restore it if that was never sent.
    package struct Ending: Sendable {
        fileprivate var id: String
        fileprivate var connection: UInt64
        fileprivate var transaction: Transaction
    }

    /// Begins a transaction.
    ///
    /// - Returns: Its id, and the frame to send; nil without a connection.
    package mutating func beginTransaction() -> (id: String, frame: STOMPFrame)? {
        guard self.agreement != nil else { return nil }
        self.lastTransaction += 1
        let id = "tx-\(self.lastTransaction)"
        self.transactions[id] = Transaction()
        return (id, STOMPFrame(.begin, ["transaction": id]))
    }

    /// Returns whether the transaction exists and has not ended.
    package func hasTransaction(_ id: String) -> Bool { self.transactions[id] != nil }

    /// Forgets a transaction whose beginning was not sent.
    package mutating func undoBeginning(of id: String) {
        self.transactions[id] = nil
    }

    /// Restores a transaction whose end was not sent: it can be ended by another frame. Has no effect once its
    /// connection has ended.
    package mutating func undo(_ ending: Ending) {
        guard ending.connection == self.connection, self.agreement != nil else { return }
        self.transactions[ending.id] = ending.transaction
    }

    /// Ends a transaction.
    ///
    /// - Parameter isCommitted: Whether it takes effect; otherwise all of it is undone.
    /// - Returns: The frame to send, and what to undo if a commit was not sent.
    /// - Throws: ``/HHSocket/SocketError`` with code `connectionLost` if it has ended with its connection.
    package mutating func endTransaction(_ id: String, isCommitted: Bool) throws(SocketError) -> (
        frame: STOMPFrame, ending: Ending
    ) {
        guard let transaction = self.transactions.removeValue(forKey: id) else { throw Self.noTransaction() }
        for (subscription, numbers) in transaction.settled {
            if !isCommitted { self.subscriptions[subscription]?.acks.reopen(numbers) }
            self.trim(subscription)
        }
        return (
            STOMPFrame(isCommitted ? .commit : .abort, ["transaction": id]),
            Ending(id: id, connection: self.connection, transaction: transaction)
        )
    }

    static func noTransaction() -> SocketError {
        STOMPErrors.lost("the transaction has ended: its connection was lost, and nothing of it took effect")
    }
}
