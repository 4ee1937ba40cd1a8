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
            return self.send(STOMPUnit(frame, nil, isOfOneConnection: isOfOneConnection), in: &turn)
        }
        guard !self.isOver else { return completion(.failure(Self.released)) }
        var frame = frame
        let receipt = awaitsReceipt ? self.machine.makeReceipt() : nil
        if let receipt { frame.headers.add(name: "receipt", value: receipt) }
        let operation = STOMPOperation(.frame(frame), receipt: receipt, completion)
        let outcome = MessageOutcome { [weak self] result in self?.left(operation, result) }
        operation.outcome = outcome
        self.add(operation, in: &turn)
        self.send(STOMPUnit(frame, outcome, isOfOneConnection: isOfOneConnection), in: &turn)
    }

    private func send(_ unit: STOMPUnit, in turn: inout Turn) {
        guard unit.isOfOneConnection else {
            guard let session = self.session else { return fail(Self.released) }
            return session.send(unit, in: &turn)
        }
        guard let peer = self.peer, peer.link.phase == .open else {
            return fail(Self.lost("there is no connection to the broker any more"))
        }
        if let refusal = self.refusal(of: unit) { return fail(refusal) }
        guard peer.send(unit, in: &turn) else {
            return fail(SocketError(.queueFull, message: "too many bytes wait for the broker to read"))
        }
        func fail(_ error: SocketError) { unit.outcome?.complete(.failure(error)) }
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
            let frame = try self.machine.settle(
                delivery,
                isAcknowledged: isAcknowledged,
                in: transaction,
                headers: headers
            )
            if let frame {
                let told = awaitsReceipt ? completion : nil
                self.send(frame, awaitsReceipt: awaitsReceipt, isOfOneConnection: true, in: &turn, told)
            }
            self.reconsiderReading()
            if frame == nil || !awaitsReceipt { completion?(.success(())) }
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
        self.send(frame, awaitsReceipt: false, isOfOneConnection: true, in: &turn, nil)
        return .success(id)
    }

    /// Ends a transaction. A commit completes when the broker has confirmed it.
    func endTransaction(
        _ id: String,
        isCommitted: Bool,
        in turn: inout Turn,
        _ completion: STOMPOperation.Completion?
    ) {
        do throws(SocketError) {
            let frame = try self.machine.endTransaction(id, isCommitted: isCommitted)
            self.send(
                frame,
                awaitsReceipt: isCommitted,
                isOfOneConnection: true,
                in: &turn,
                isCommitted ? completion : nil
            )
            self.reconsiderReading()
            if !isCommitted { completion?(.success(())) }
        } catch {
            completion?(.failure(error))
        }
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
