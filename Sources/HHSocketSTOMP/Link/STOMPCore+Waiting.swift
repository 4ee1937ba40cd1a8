// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers

/// Calls between other threads and the core.
extension STOMPCore {
    /// Runs `body` on the socket's thread, and waits until it has called its completion, which it does once. Cancelling
    /// the task ends the operation that it has begun.
    func run(
        _ body: @escaping @Sendable (STOMPCore, inout Turn, @escaping STOMPOperation.Completion) -> Void
    ) async throws(SocketError) {
        let token = STOMPToken()
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { (waiter: CheckedContinuation<Result<Void, SocketError>, Never>) in
                let isSubmitted = self.perform { turn in
                    guard !token.isCancelled else { return waiter.resume(returning: .failure(Self.cancelled)) }
                    self.token = token
                    body(self, &turn) { result in
                        self.passLock()
                        waiter.resume(returning: result)
                    }
                    self.token = nil
                }
                if !isSubmitted { waiter.resume(returning: .failure(Self.released)) }
            }
        } onCancel: {
            self.perform { _ in
                token.isCancelled = true
                if let operation = token.operation { self.cancel(operation) }
            }
        }
        self.passLock()
        try result.get()
    }

    /// Makes the order of two threads' accesses visible to the thread sanitizer.
    private func passLock() {
        if ThreadSanitizer.isRunning { _ = self.connectionNumber }
    }

    private static let cancelled = SocketError(.cancelled, message: "the task was cancelled before anything was sent")

    /// Runs `body` on the socket's thread, without waiting.
    ///
    /// - Parameter completion: Called on the callback queue; nil: there is no completion.
    func run(
        _ completion: STOMPOperation.Completion?,
        _ body: @escaping @Sendable (STOMPCore, inout Turn, STOMPOperation.Completion?) -> Void
    ) {
        let told = completion.map { completion -> STOMPOperation.Completion in
            { self.tell(completion, $0) }
        }
        let isSubmitted = self.perform { body(self, &$0, told) }
        if !isSubmitted { told?(.failure(Self.released)) }
    }

    /// Calls a completion on the callback queue.
    func tell(_ completion: STOMPOperation.Completion?, _ result: Result<Void, SocketError>) {
        guard let completion else { return }
        let queue = self.configuration.socket.callbackQueue
        guard let loop = self.driver?.loop else { return queue.run { completion(result) } }
        queue.run(on: loop) { completion(result) }
    }
}

/// Connects a waiting task with its operation.
final class STOMPToken: @unchecked Sendable {
    // Proof of Sendable: it is accessed only on the socket's thread.
    var operation: STOMPOperation?
    var isCancelled = false
}
