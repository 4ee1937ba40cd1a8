// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// Operations, and the time that they have.
extension STOMPCore {
    /// Ends an operation.
    func complete(_ operation: STOMPOperation, _ result: Result<Void, SocketError>) {
        self.operations.complete(operation, result)
        guard self.operations.count == 0 else { return }
        self.reconsiderReading()
        if !self.idleWaiters.isEmpty { self.perform { self.notifyIdle(in: &$0) } }
    }

    /// Gives an operation the time that operations have.
    func add(_ operation: STOMPOperation, in turn: inout Turn) {
        let deadline = turn.now.advanced(clamping: TimeAmount(clamping: self.configuration.timeout))
        self.operations.add(operation, until: deadline)
        self.token?.operation = operation
        if self.operations.count == 1 { self.reconsiderReading() }
        self.armTimer()
    }

    private func armTimer() {
        guard self.timer == nil, let deadline = self.operations.nextDeadline, let loop = self.driver?.loop else {
            return
        }
        self.timer = loop.setTimer(deadline) { [weak self] turn in
            guard let self else { return }
            self.timer = nil
            for operation in self.operations.late(now: turn.now) { self.timeOut(operation) }
            self.armTimer()
        }
    }

    /// The user waits no longer.
    func cancel(_ operation: STOMPOperation) {
        self.abandon(operation, .cancelled, "\(operation.name) was cancelled")
    }

    /// Ends an operation early. A frame that has not begun to leave is not sent.
    func abandon(_ operation: STOMPOperation, _ code: SocketError.Code, _ message: String) {
        let hasBegun = operation.outcome?.hasBegun ?? false
        let error = SocketError(
            code,
            message: message,
            endpoint: self.peer?.endpoint,
            delivery: hasBegun ? .sentUnknown : .notSent
        )
        if !hasBegun, let outcome = operation.outcome { self.session?.cancel(outcome, with: error) }
        self.complete(operation, .failure(error))
    }

    private func timeOut(_ operation: STOMPOperation) {
        let hasBegun = operation.outcome?.hasBegun ?? false
        let why =
            hasBegun
            ? operation.receipt == nil ? "it could not be sent" : "the broker did not confirm it"
            : self.peer == nil
                ? "there was no connection on which to send it" : "earlier frames were not sent"
        let last = self.peer == nil ? self.driver?.lastError.map { "; the last failure: \($0.message)" } : nil
        let limit = "\(self.configuration.timeout) (STOMPClient.Configuration.timeout)"
        self.abandon(operation, .timeout, "\(operation.name) failed: \(why) within \(limit)\(last ?? "")")
    }
}
