// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// Frames that the user sends.
extension STOMPCore {
    /// Sends a frame, and completes when it was handed to the system, or, with a receipt, when the receipt has arrived.
    ///
    /// - Parameters:
    ///   - isOfOneConnection: Whether it is only for this connection; otherwise it waits for one if there is none.
    ///   - completion: Called once; nil: there is no completion and no receipt.
    func send(
        _ frame: STOMPFrame,
        awaitsReceipt: Bool,
        isOfOneConnection: Bool,
        in turn: inout Turn,
        _ completion: STOMPOperation.Completion?
    ) {
        guard let completion else {
            _ = self.send(STOMPUnit(frame, nil, isOfOneConnection: isOfOneConnection), in: &turn)
            return
        }
        guard !self.isOver else { return completion(.failure(Self.released)) }
        var frame = frame
        let receipt = awaitsReceipt ? self.machine.makeReceipt() : nil
        if let receipt { frame.headers.add(name: "receipt", value: receipt) }
        let operation = STOMPOperation(.frame(frame), receipt: receipt, completion)
        let outcome = MessageOutcome { [weak self] result in self?.left(operation, result) }
        operation.outcome = outcome
        self.add(operation, in: &turn)
        _ = self.send(STOMPUnit(frame, outcome, isOfOneConnection: isOfOneConnection), in: &turn)
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
                undo(&self.machine)
                self.reconsiderReading()
            }
            completion?(result)
        }
        guard !awaitsReceipt else {
            return self.send(frame, awaitsReceipt: true, isOfOneConnection: true, in: &turn, finish)
        }
        guard let refusal = self.send(STOMPUnit(frame, nil, isOfOneConnection: true), in: &turn) else {
            completion?(.success(()))
            return
        }
        finish(.failure(refusal))
    }

    /// - Returns: The reason why a frame of one connection is not sent, of which its outcome is notified too.
    private func send(_ unit: STOMPUnit, in turn: inout Turn) -> SocketError? {
        guard unit.isOfOneConnection else {
            guard let session = self.session else { return fail(Self.released) }
            session.send(unit, in: &turn)
            return nil
        }
        guard let peer = self.peer, peer.link.phase == .open else {
            return fail(Self.lost("there is no connection to the broker any more"))
        }
        if let refusal = self.refusal(of: unit) { return fail(refusal) }
        guard peer.send(unit, in: &turn) else {
            return fail(SocketError(.queueFull, message: "too many bytes wait for the broker to read"))
        }
        return nil
        func fail(_ error: SocketError) -> SocketError {
            unit.outcome?.complete(.failure(error))
            return error
        }
    }

    /// Returns the reason why the agreed version cannot carry a frame; nil if it can.
    func refusal(of unit: STOMPUnit) -> SocketError? {
        guard let frame = unit.frame, let version = self.machine.agreement?.version,
            let refusal = STOMPEncoder.refusal(of: frame, version: version, limits: self.configuration.limits)
        else { return nil }
        return SocketError(.invalidArgument, message: "\(refusal)", endpoint: self.peer?.endpoint)
    }

    /// A frame has been handed to the system, or cannot be.
    private func left(_ operation: STOMPOperation, _ result: Result<Void, SocketError>) {
        operation.hasLeft = true
        if case .success = result, operation.receipt != nil { return }
        self.complete(operation, result)
    }

    /// Calls `completion` once a connection is accepted, or when there is none in time.
    func whenConnected(_ name: String, in turn: inout Turn, _ completion: @escaping STOMPOperation.Completion) {
        guard !self.isOver else { return completion(.failure(Self.released)) }
        if let peer = self.peer, peer.link.phase == .open { return completion(.success(())) }
        guard let driver = self.driver, !driver.isClosed else {
            return completion(.failure(self.driver?.notConnected() ?? Self.released))
        }
        let operation = STOMPOperation(.waiting(name), receipt: nil, completion)
        self.connectionWaiters.removeAll { !$0.isOpen }
        self.connectionWaiters.append(operation)
        self.add(operation, in: &turn)
    }

    /// Calls `completion` once no operation waits for the broker, or when the time for DISCONNECT is over.
    func whenIdle(in turn: inout Turn, _ completion: @escaping (inout Turn) -> Void) {
        guard self.operations.count > 0, let peer = self.peer, peer.link.phase == .open else {
            return completion(&turn)
        }
        self.idleWaiters.append(completion)
        guard self.idleTimer == nil else { return }
        let patience = TimeAmount(clamping: self.configuration.disconnectTimeout)
        self.idleTimer = peer.link.loop.setTimer(turn.now.advanced(clamping: patience)) { [weak self] turn in
            self?.notifyIdle(in: &turn)
        }
    }

    /// Notifies the waiting callers that no operation waits for the broker, or that they need not wait for it.
    func notifyIdle(in turn: inout Turn) {
        if let timer = self.idleTimer.take() { self.driver?.loop.removeTimer(timer) }
        let waiters = self.idleWaiters
        self.idleWaiters = []
        for waiter in waiters { waiter(&turn) }
    }

    /// Sends everything that waited for a connection, subscriptions first, once a connection is accepted and ready.
    func restore(on peer: STOMPPeer, in turn: inout Turn) {
        self.subscribeRestored(in: &turn)
        let waiters = self.connectionWaiters
        self.connectionWaiters = []
        for waiter in waiters { self.complete(waiter, .success(())) }
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
            if let peer = self.peer, peer.link.phase != .open {
                throw Self.lost("a message cannot be settled: its connection is being closed")
            }
            let settled = try self.machine.settle(
                delivery,
                isAcknowledged: isAcknowledged,
                in: transaction,
                headers: headers
            )
            defer { self.reconsiderReading() }
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
        guard let peer = self.peer, peer.link.phase == .open, let (id, frame) = self.machine.beginTransaction() else {
            return .failure(Self.lost("a transaction cannot begin: the connection was lost"))
        }
        if let refusal = self.send(STOMPUnit(frame, nil, isOfOneConnection: true), in: &turn) {
            self.machine.undoBeginning(of: id)
            return .failure(refusal)
        }
        return .success(id)
    }

    /// Commits a transaction. Completes when the broker has confirmed it. If the frame could not be sent, all of the
    /// transaction is undone.
    func commit(_ id: String, in turn: inout Turn, _ completion: @escaping STOMPOperation.Completion) {
        do throws(SocketError) {
            let (frame, ending) = try self.machine.endTransaction(id, isCommitted: true)
            self.send(frame, awaitsReceipt: true, in: &turn, undo: { $0.undo(ending) }) { [weak self] result in
                if case .failure(let error) = result, error.delivery == .notSent, let self {
                    self.perform { self.abort(id, in: &$0) }
                }
                completion(result)
            }
            self.reconsiderReading()
        } catch {
            completion(.failure(error))
        }
    }

    /// Undoes a transaction, if it has not ended with its connection.
    func abort(_ id: String, in turn: inout Turn) {
        guard let (frame, _) = try? self.machine.endTransaction(id, isCommitted: false) else { return }
        defer { self.reconsiderReading() }
        guard let refusal = self.send(STOMPUnit(frame, nil, isOfOneConnection: true), in: &turn), let peer = self.peer,
            peer.link.phase == .open
        else { return }
        // The broker would keep the transaction, with its messages, until the end of the connection.
        let error = Self.lost("a transaction could not be undone: \(refusal.message)", .sentUnknown)
        peer.link.end(LinkEnd(.said(error), EndVerdict(.afterBackoff, isServersFault: false)), in: &turn)
    }

    /// Sends a frame as part of a transaction.
    func send(
        _ frame: STOMPFrame,
        inTransaction id: String,
        in turn: inout Turn,
        _ completion: @escaping STOMPOperation.Completion
    ) {
        guard self.machine.hasTransaction(id) else { return completion(.failure(STOMPMachine.noTransaction())) }
        var frame = frame
        frame.headers.add(name: "transaction", value: id)
        self.send(frame, awaitsReceipt: false, isOfOneConnection: true, in: &turn, completion)
    }
}
