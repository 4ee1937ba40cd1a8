// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import NIOCore

/// The operations that have not ended, with the time that each has, and the callers that wait for their end.
final class STOMPOperations: @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable; the rest is accessed only on the socket's thread.
    let port: STOMPPort
    private let connection: STOMPConnection
    private let reading: STOMPReading
    private let timeout: Duration
    private let disconnectTimeout: Duration
    private var receipts: [String: STOMPOperation] = [:]
    /// All that have a time, in the order in which it is up; those that have ended stay until most have.
    private var deadlines: Deque<(time: NIODeadline, operation: STOMPOperation)> = []
    /// The number of operations that have not ended.
    private var count = 0
    private var timer: SocketLoop.TimerID?
    /// The task that has made the current submission, if it may be cancelled.
    private var token: STOMPToken?
    /// The operations that wait for a connection.
    private var connectionWaiters: [STOMPOperation] = []
    /// The callbacks that wait until no operation waits for the broker.
    private var idleWaiters: [(inout Turn) -> Void] = []
    /// Ends their wait.
    private var idleTimer: SocketLoop.TimerID?
    private var hasEnded = false

    init(
        _ configuration: STOMPConfiguration,
        _ connection: STOMPConnection,
        port: STOMPPort,
        reading: STOMPReading
    ) {
        self.port = port
        self.connection = connection
        self.reading = reading
        self.timeout = configuration.timeout
        self.disconnectTimeout = configuration.disconnectTimeout
    }

    /// Whether the client has been released.
    var isOver: Bool { self.hasEnded }

    // MARK: From any thread

    /// Runs `body` on the socket's thread, and waits until it has called its completion, which it does once. Cancelling
    /// the task ends the operation that it has begun.
    func run(
        _ body: @escaping @Sendable (inout Turn, @escaping STOMPOperation.Completion) -> Void
    ) async throws(SocketError) {
        let token = STOMPToken()
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { (waiter: CheckedContinuation<Result<Void, SocketError>, Never>) in
                let isSubmitted = self.port.perform { turn in
                    guard !token.isCancelled else { return waiter.resume(returning: .failure(Self.cancelled)) }
                    self.token = token
                    body(&turn) { result in
                        self.passLock()
                        waiter.resume(returning: result)
                    }
                    self.token = nil
                }
                if !isSubmitted { waiter.resume(returning: .failure(STOMPErrors.released)) }
            }
        } onCancel: {
            self.port.perform { _ in
                if let operation = token.cancel() { self.cancel(operation) }
            }
        }
        self.passLock()
        try result.get()
    }

    /// Makes the order of two threads' accesses visible to the thread sanitizer.
    private func passLock() {
        if ThreadSanitizer.isRunning { _ = self.connection.number }
    }

    private static let cancelled = SocketError(.cancelled, message: "the task was cancelled before anything was sent")

    /// Runs `body` on the socket's thread, without waiting.
    ///
    /// - Parameter completion: Called on the callback queue; nil: there is no completion.
    func run(
        _ completion: STOMPOperation.Completion?,
        _ body: @escaping @Sendable (inout Turn, STOMPOperation.Completion?) -> Void
    ) {
        let reporting = completion.map { completion -> STOMPOperation.Completion in
            { self.port.complete(completion, $0) }
        }
        let isSubmitted = self.port.perform { body(&$0, reporting) }
        if !isSubmitted { reporting?(.failure(STOMPErrors.released)) }
    }

    // MARK: Operations

    /// The operation that awaits this receipt.
    func awaiting(_ receipt: String) -> STOMPOperation? { self.receipts[receipt] }

    /// Gives an operation the time that operations have.
    func add(_ operation: STOMPOperation, in turn: inout Turn) {
        self.count += 1
        if let receipt = operation.receipt { self.receipts[receipt] = operation }
        // Not earlier than those of the other operations.
        let deadline = turn.now.advanced(clamping: TimeAmount(clamping: self.timeout))
        self.deadlines.append((deadline, operation))
        self.token?.begin(operation)
        if self.count == 1 {
            self.reading.setAwaited(true)
            self.reading.reconsider()
        }
        self.armTimer()
    }

    /// A frame has been handed to the system, or cannot be.
    func left(_ operation: STOMPOperation, _ result: Result<Void, SocketError>) {
        operation.markSent()
        if case .success = result, operation.receipt != nil { return }
        self.complete(operation, result)
    }

    /// Ends an operation.
    func complete(_ operation: STOMPOperation, _ result: Result<Void, SocketError>) {
        self.end(operation, result)
        guard self.count == 0 else { return }
        self.reading.reconsider()
        if !self.idleWaiters.isEmpty { self.port.perform { self.notifyIdle(in: &$0) } }
    }

    private func end(_ operation: STOMPOperation, _ result: Result<Void, SocketError>) {
        guard operation.isOpen else { return }
        self.count -= 1
        if self.count == 0 { self.reading.setAwaited(false) }
        if let receipt = operation.receipt { self.receipts[receipt] = nil }
        operation.complete(result)
        while let first = self.deadlines.first, !first.operation.isOpen { self.deadlines.removeFirst() }
        if self.deadlines.count > 2 * self.count + 64 { self.deadlines.removeAll { !$0.operation.isOpen } }
    }

    /// The user waits no longer.
    private func cancel(_ operation: STOMPOperation) {
        self.abandon(operation, code: .cancelled, message: "\(operation.name) was cancelled")
    }

    /// Ends an operation early. A frame that has not begun to leave is not sent.
    private func abandon(_ operation: STOMPOperation, code: SocketError.Code, message: String) {
        let hasBegun = operation.outcome?.hasBegun ?? false
        let error = SocketError(
            code,
            message: message,
            endpoint: self.connection.peer?.endpoint,
            delivery: hasBegun ? .sentUnknown : .notSent
        )
        if !hasBegun, let outcome = operation.outcome { self.port.cancel(outcome, with: error) }
        self.complete(operation, .failure(error))
    }

    private func armTimer() {
        guard self.timer == nil, let deadline = self.deadlines.first?.time, let loop = self.port.loop else { return }
        self.timer = loop.setTimer(deadline) { [weak self] turn in
            guard let self else { return }
            self.timer = nil
            for operation in self.late(now: turn.now) { self.timeOut(operation) }
            self.armTimer()
        }
    }

    /// Returns the operations that have timed out.
    private func late(now: NIODeadline) -> [STOMPOperation] {
        self.deadlines.prefix { $0.time <= now }.map(\.operation).filter(\.isOpen)
    }

    private func timeOut(_ operation: STOMPOperation) {
        let hasBegun = operation.outcome?.hasBegun ?? false
        let hasPeer = self.connection.peer != nil
        let why =
            hasBegun
            ? operation.receipt == nil ? "it could not be sent" : "the broker did not confirm it"
            : hasPeer ? "earlier frames were not sent" : "there was no connection on which to send it"
        let last = hasPeer ? nil : self.port.lastError.map { "; the last failure: \($0.message)" }
        let limit = "\(self.timeout) (STOMPClient.Configuration.timeout)"
        self.abandon(
            operation,
            code: .timeout,
            message: "\(operation.name) failed: \(why) within \(limit)\(last ?? "")"
        )
    }

    // MARK: Waiting

    /// Calls `completion` once a connection is accepted, or when there is none in time.
    func whenConnected(_ name: String, in turn: inout Turn, _ completion: @escaping STOMPOperation.Completion) {
        guard !self.isOver else { return completion(.failure(STOMPErrors.released)) }
        guard self.connection.openPeer == nil else { return completion(.success(())) }
        if let refusal = self.port.refusal { return completion(.failure(refusal)) }
        let operation = STOMPOperation(.waiting(name), receipt: nil, completion)
        self.connectionWaiters.removeAll { !$0.isOpen }
        self.connectionWaiters.append(operation)
        self.add(operation, in: &turn)
    }

    /// Calls `completion` once no operation waits for the broker, or when the time for DISCONNECT is over.
    func whenIdle(in turn: inout Turn, _ completion: @escaping (inout Turn) -> Void) {
        guard self.count > 0, let peer = self.connection.openPeer else { return completion(&turn) }
        self.idleWaiters.append(completion)
        guard self.idleTimer == nil else { return }
        let patience = TimeAmount(clamping: self.disconnectTimeout)
        self.idleTimer = peer.link.loop.setTimer(turn.now.advanced(clamping: patience)) { [weak self] turn in
            self?.notifyIdle(in: &turn)
        }
    }

    /// Notifies the waiting callers that no operation waits for the broker, or that they need not wait for it.
    private func notifyIdle(in turn: inout Turn) {
        if let timer = self.idleTimer.take() { self.port.loop?.removeTimer(timer) }
        let waiters = self.idleWaiters
        self.idleWaiters = []
        for waiter in waiters { waiter(&turn) }
    }

    // MARK: Changes of the connection

    /// A connection is accepted and ready.
    func connected() {
        let waiters = self.connectionWaiters
        self.connectionWaiters = []
        for waiter in waiters { self.complete(waiter, .success(())) }
    }

    /// The connection has ended: operations whose frame was sent and whose receipt has not arrived fail.
    func disconnected(_ error: SocketError, in turn: inout Turn) {
        // Before another connection is made.
        self.notifyIdle(in: &turn)
        for operation in self.receipts.values.filter(\.hasLeft) { self.complete(operation, .failure(error)) }
    }

    /// No connection follows: operations no longer wait for one.
    func failConnectionWaiters(_ error: SocketError) {
        for waiter in self.connectionWaiters { self.complete(waiter, .failure(error)) }
    }

    /// Ends everything because the client is released.
    func release(in turn: inout Turn) {
        self.hasEnded = true
        self.notifyIdle(in: &turn)
        let (code, message) = (STOMPErrors.released.code, STOMPErrors.released.message)
        for operation in self.deadlines.map(\.operation).filter(\.isOpen) {
            self.abandon(operation, code: code, message: message)
        }
        if let timer = self.timer.take() { self.port.loop?.removeTimer(timer) }
    }
}

/// Connects a waiting task with its operation.
private final class STOMPToken: @unchecked Sendable {
    // Proof of Sendable: it is accessed only on the socket's thread.
    private var operation: STOMPOperation?
    private var isOver = false

    var isCancelled: Bool { self.isOver }

    func begin(_ operation: STOMPOperation) { self.operation = operation }

    /// The task waits no longer.
    ///
    /// - Returns: Its operation, if it has begun one.
    func cancel() -> STOMPOperation? {
        self.isOver = true
        return self.operation
    }
}
