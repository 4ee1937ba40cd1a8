// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers
import NIOCore

/// The result of work that cannot be interrupted, such as a name lookup, for an owner on an event loop that may abandon
/// it. Completes once; a result that comes too late is dropped on the thread that brings it, so that the event loop may
/// have ended by then.
final class AbandonableResult<Value: Sendable>: Sendable {
    let futureResult: EventLoopFuture<Value>
    /// Nil once it is completed.
    private let promise: NIOLockedValueBox<EventLoopPromise<Value>?>
    private let task = NIOLockedValueBox<Task<Void, Never>?>(nil)

    /// The owner must complete or abandon it.
    init(on eventLoop: any EventLoop) {
        let promise = eventLoop.makePromise(of: Value.self)
        self.futureResult = promise.futureResult
        self.promise = NIOLockedValueBox(promise)
    }

    /// Completes it, on any thread, unless it is completed or abandoned.
    func complete(_ result: Result<Value, any Error>) {
        self.promise.withLockedValue { $0.take() }?.completeWith(result)
    }

    /// Completes it with the result of `body`, whose task is cancelled if it is abandoned. Must be called once at most.
    func complete(with body: @escaping @Sendable () async throws -> Value) {
        let task = Task {
            do { self.complete(.success(try await body())) } catch { self.complete(.failure(error)) }
        }
        self.task.withLockedValue { $0 = task }
    }

    /// Fails it with `CancellationError` if it is not completed, and cancels its task.
    func abandon() {
        self.complete(.failure(CancellationError()))
        self.task.withLockedValue { $0.take() }?.cancel()
    }
}
