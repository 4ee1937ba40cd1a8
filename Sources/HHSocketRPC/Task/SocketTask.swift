import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// One call. Made suspended; ``resume()`` starts it, and it completes exactly once: with an answer, with an error, or
/// with `cancelled`.
///
/// Behaves as `URLSessionDataTask` does: resuming twice, cancelling twice, cancelling before resuming and cancelling a
/// completed task are all harmless. A task that is never resumed or cancelled completes never and leaks nothing.
public final class SocketTask: Sendable {
    public enum State: Sendable, Hashable {
        /// Not resumed yet.
        case suspended
        case running
        /// Cancelled; the completion is on its way. It brings `cancelled`, or the answer if that had come before.
        case canceling
        case completed
    }

    /// Who is told of the result, once.
    enum Completion: Sendable {
        case nobody
        case handler(@Sendable (Result<SocketResponse, SocketError>) -> Void)
        /// Finds the result in the task.
        case continuation(CheckedContinuation<Void, Never>)
    }

    private struct Snapshot {
        var state = State.suspended
        var completion: Completion
        var result: Result<SocketResponse, SocketError>?
        var bytesSent = 0
    }

    /// Unique among the tasks of a client, from 1.
    public let taskIdentifier: Int
    /// The request the task was made with.
    public let originalRequest: SocketRequest
    private let client: ClientCore
    private let snapshot: NIOLockedValueBox<Snapshot>

    /// The task's place in the dispatch table while it is there.
    /// Proof of `nonisolated(unsafe)`: read and written by ClientCore alone, on the socket thread.
    nonisolated(unsafe) var key: DispatchKey?

    init(identifier: Int, request: SocketRequest, client: ClientCore, completion: Completion) {
        self.taskIdentifier = identifier
        self.originalRequest = request
        self.client = client
        self.snapshot = NIOLockedValueBox(Snapshot(completion: completion))
    }

    public var state: State { self.snapshot.withLockedValue { $0.state } }

    /// The answer, once the task completed with one.
    public var response: SocketResponse? {
        self.snapshot.withLockedValue { $0.result.flatMap { try? $0.get() } }
    }

    /// The error, once the task completed with one.
    public var error: SocketError? {
        self.snapshot.withLockedValue {
            if case .failure(let error) = $0.result { error } else { nil }
        }
    }

    /// How many bytes of the body have left the queue; up to 128 KiB of them may not have reached the network yet. A body
    /// of up to 64 KiB is counted whole, when it is answered.
    public var countOfBytesSent: Int { self.snapshot.withLockedValue { $0.bytesSent } }

    /// The length of the body in bytes.
    public var countOfBytesExpectedToSend: Int { self.originalRequest.body.readableBytes }

    /// Starts the call. The timeout counts from here. Does nothing unless the task is suspended.
    public func resume() {
        let starts = self.snapshot.withLockedValue { snapshot in
            guard snapshot.state == .suspended else { return false }
            snapshot.state = .running
            return true
        }
        if starts { self.submit(.start) }
    }

    /// Gives the call up: the server is told, the connection stays. Returns at once, with the state `canceling`; the
    /// completion follows.
    public func cancel() {
        if self.beginCancelling() { self.submit(.cancel) }
    }

    // MARK: For ClientCore

    /// - Returns: Whether the task was not being cancelled, or complete, before.
    func beginCancelling() -> Bool {
        self.snapshot.withLockedValue { snapshot in
            guard snapshot.state == .suspended || snapshot.state == .running else { return false }
            snapshot.state = .canceling
            return true
        }
    }

    private enum Operation: UInt8 { case start, cancel }

    private func submit(_ operation: Operation) {
        guard !self.client.submit(.work(self, operation.rawValue)) else { return }
        // The client is gone, and with it the thread and the table that complete tasks.
        guard let completion = self.finish(.failure(ClientCore.released)) else { return }
        switch completion {
        case .nobody: break
        case .continuation(let continuation): continuation.resume()
        case .handler: self.client.callBackAfterInvalidation(self)
        }
    }

    /// Sets who is told. False if the task has completed already and nobody will be.
    func attach(_ continuation: CheckedContinuation<Void, Never>) -> Bool {
        self.snapshot.withLockedValue { snapshot in
            guard snapshot.result == nil else { return false }
            snapshot.completion = .continuation(continuation)
            return true
        }
    }

    /// The result, once there is one.
    var result: Result<SocketResponse, SocketError>? { self.snapshot.withLockedValue { $0.result } }

    /// Completes the task. Nil if it had completed before.
    ///
    /// A handler is kept for ``callBack()``; a continuation is handed out.
    func finish(_ result: Result<SocketResponse, SocketError>) -> Completion? {
        self.snapshot.withLockedValue { snapshot in
            guard snapshot.result == nil else { return nil }
            snapshot.state = .completed
            snapshot.result = result
            if case .success = result { snapshot.bytesSent = self.originalRequest.body.readableBytes }
            if case .continuation = snapshot.completion {
                defer { snapshot.completion = .nobody }
                return snapshot.completion
            }
            return snapshot.completion
        }
    }

    func progressed(bytesSent: Int) {
        self.snapshot.withLockedValue { $0.bytesSent = bytesSent }
    }
}

extension SocketTask: SubmittedWork {
    package func performOnSocketThread(_ operation: UInt8) {
        switch Operation(rawValue: operation) {
        case .start: self.client.start(self)
        case .cancel: self.client.cancel(self)
        case nil: assertionFailure("unknown operation \(operation)")
        }
    }
}

extension SocketTask: CallbackWork {
    package func callBack() {
        let (completion, result) = self.snapshot.withLockedValue { snapshot in
            defer { snapshot.completion = .nobody }
            return (snapshot.completion, snapshot.result)
        }
        if case .handler(let handler) = completion, let result { handler(result) }
    }
}

extension SocketTask: CustomStringConvertible {
    public var description: String {
        "task \(self.taskIdentifier) type \(self.originalRequest.type) \(self.state)"
    }
}
