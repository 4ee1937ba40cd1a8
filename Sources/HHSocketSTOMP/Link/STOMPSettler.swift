// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// Acknowledgements, and transactions. On the socket's thread.
final class STOMPSettler: @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable, or accessed only on the socket's thread.
    let operations: STOMPOperations
    private let connection: STOMPConnection
    private let sender: STOMPSender
    private let reading: STOMPReading

    init(_ connection: STOMPConnection, _ sender: STOMPSender, reading: STOMPReading) {
        self.operations = sender.operations
        self.connection = connection
        self.sender = sender
        self.reading = reading
    }

    /// Sends a frame of the current connection that changes the state of the session. A frame that is accepted is lost
    /// only with its connection, whose state ends with it, or by an end of its operation.
    ///
    /// - Parameters:
    ///   - awaitsReceipt: Whether to complete when its receipt has arrived; else when the frame was accepted.
    ///   - undo: Restores the state; called before `completion`, if no byte of the frame was sent.
    private func send(
        _ frame: STOMPFrame,
        awaitsReceipt: Bool,
        in turn: inout Turn,
        undo: @escaping @Sendable (inout STOMPMachine) -> Void,
        _ completion: STOMPOperation.Completion?
    ) {
        let finish: STOMPOperation.Completion = { [weak self] result in
            if case .failure(let error) = result, error.delivery == .notSent, let self {
                self.connection.decide(undo)
                self.reading.reconsider()
            }
            completion?(result)
        }
        guard !awaitsReceipt else {
            return self.sender.send(frame, awaitsReceipt: true, isOfOneConnection: true, in: &turn, finish)
        }
        guard let refusal = self.sender.send(frame, in: &turn) else {
            completion?(.success(()))
            return
        }
        finish(.failure(refusal))
    }

    // MARK: Acknowledgements

    /// Acknowledges or rejects a message. Completes when the frame is being sent, or, with a receipt, when the receipt
    /// has arrived.
    func settle(
        _ delivery: STOMPDelivery,
        isAcknowledged: Bool,
        transaction: String?,
        headers: STOMPHeaders,
        awaitsReceipt: Bool,
        in turn: inout Turn,
        _ completion: STOMPOperation.Completion?
    ) {
        do throws(SocketError) {
            if let peer = self.connection.peer, peer.link.phase != .open {
                throw STOMPErrors.lost("a message cannot be settled: its connection is being closed")
            }
            let settled = try self.connection.decide { machine throws(SocketError) in
                try machine.settle(delivery, isAcknowledged: isAcknowledged, in: transaction, headers: headers)
            }
            defer { self.reading.reconsider() }
            guard let (frame, settlement) = settled else {
                completion?(.success(()))
                return
            }
            self.send(
                frame,
                awaitsReceipt: awaitsReceipt,
                in: &turn,
                undo: { $0.undo(settlement) },
                completion
            )
        } catch {
            completion?(.failure(error))
        }
    }

    // MARK: Transactions

    /// Begins a transaction on the current connection.
    func beginTransaction(in turn: inout Turn) -> Result<String, SocketError> {
        guard self.connection.openPeer != nil,
            let (id, frame) = self.connection.decide({ $0.beginTransaction() })
        else { return .failure(STOMPErrors.lost("a transaction cannot begin: the connection was lost")) }
        if let refusal = self.sender.send(frame, in: &turn) {
            self.connection.decide { $0.undoBeginning(of: id) }
            return .failure(refusal)
        }
        return .success(id)
    }

    /// Commits a transaction. Completes when the broker has confirmed it. If the frame could not be sent, all of the
    /// transaction is undone.
    func commit(_ id: String, in turn: inout Turn, _ completion: @escaping STOMPOperation.Completion) {
        do throws(SocketError) {
            let (frame, ending) = try self.endTransaction(id, isCommitted: true)
            self.send(frame, awaitsReceipt: true, in: &turn, undo: { $0.undo(ending) }) { [weak self] result in
                if case .failure(let error) = result, error.delivery == .notSent, let self {
                    self.operations.port.perform { self.abort(id, in: &$0) }
                }
                completion(result)
            }
            self.reading.reconsider()
        } catch {
            completion(.failure(error))
        }
    }

    /// Undoes a transaction, if it has not ended with its connection.
    func abort(_ id: String, in turn: inout Turn) {
        guard let (frame, _) = try? self.endTransaction(id, isCommitted: false) else { return }
        defer { self.reading.reconsider() }
        guard let refusal = self.sender.send(frame, in: &turn), let peer = self.connection.openPeer else { return }
        // The broker would keep the transaction, with its messages, until the end of the connection.
        let error = STOMPErrors.lost("a transaction could not be undone: \(refusal.message)", .sentUnknown)
        peer.link.end(LinkEnd(.said(error), EndVerdict(.afterBackoff, isServersFault: false)), in: &turn)
    }

    private func endTransaction(
        _ id: String,
        isCommitted: Bool
    ) throws(SocketError) -> (frame: STOMPFrame, ending: STOMPMachine.Ending) {
        try self.connection.decide { machine throws(SocketError) in
            try machine.endTransaction(id, isCommitted: isCommitted)
        }
    }

    /// Sends a frame as part of a transaction.
    func send(
        _ frame: STOMPFrame,
        inTransaction id: String,
        in turn: inout Turn,
        _ completion: @escaping STOMPOperation.Completion
    ) {
        guard self.connection.decide({ $0.hasTransaction(id) }) else {
            return completion(.failure(STOMPMachine.noTransaction()))
        }
        var frame = frame
        frame.headers.add(name: "transaction", value: id)
        self.sender.send(frame, awaitsReceipt: false, isOfOneConnection: true, in: &turn, completion)
    }
}
