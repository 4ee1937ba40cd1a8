import Foundation
import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import Tracing

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
        var priority: FramePriority
        var bytesSent = 0
        var bytesReceived = 0
        var bytesExpectedToReceive: Int?
        var progress: TaskProgress?
    }

    /// Unique among the tasks of a client, from 1.
    public let taskIdentifier: Int
    /// The request the task was made with.
    public let originalRequest: SocketRequest
    private let client: ClientCore
    /// Where the completion handler runs, if not where the client's do.
    let callbackQueue: CallbackQueue?
    private let snapshot: NIOLockedValueBox<Snapshot>

    /// What the socket thread knows of the task.
    /// Proof of `nonisolated(unsafe)`: written by ClientCore alone, on the socket thread, and before that by the one thread
    /// whose ``resume()`` submits the task. Others read it after they have seen under the lock that the task is complete,
    /// which it becomes under that lock when the last has been written.
    nonisolated(unsafe) var flight = TaskFlight()

    init(
        identifier: Int,
        request: SocketRequest,
        client: ClientCore,
        completion: Completion,
        callbackQueue: CallbackQueue? = nil
    ) {
        self.taskIdentifier = identifier
        self.originalRequest = request
        self.client = client
        self.callbackQueue = callbackQueue
        self.snapshot = NIOLockedValueBox(Snapshot(completion: completion, priority: request.priority))
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

    /// Which of the calls that wait leaves first; the request's at first. A task that already waits for a connection changes
    /// its place, behind others of the same priority; one that stands behind a server which does not read keeps it.
    public var priority: FramePriority {
        get { self.snapshot.withLockedValue { $0.priority } }
        set {
            let isRunning = self.snapshot.withLockedValue { snapshot in
                snapshot.priority = newValue
                return snapshot.state == .running
            }
            if isRunning { _ = self.client.submit(.work(self, Operation.reprioritize.rawValue)) }
        }
    }

    // MARK: Progress

    /// How many bytes of the body have left the queue; up to 128 KiB of them may not have reached the network yet. Of several
    /// attempts, in the last one.
    public var countOfBytesSent: Int { self.snapshot.withLockedValue { $0.bytesSent } }

    /// The length of the body in bytes.
    public var countOfBytesExpectedToSend: Int { self.originalRequest.body.readableBytes }

    /// How many bytes of the answer's body have come.
    public var countOfBytesReceived: Int { self.snapshot.withLockedValue { $0.bytesReceived } }

    /// The length of the answer's body in bytes, once its header has come.
    public var countOfBytesExpectedToReceive: Int? { self.snapshot.withLockedValue { $0.bytesExpectedToReceive } }

    /// The same as an object for user interfaces: bytes sent and received of those expected in all. Cancelling it cancels the
    /// task.
    ///
    /// Changes where the completion handler runs, and is finished when that is called. Where Foundation's `Progress` may not
    /// be used by several threads, as on Linux, read it there.
    public var progress: Progress {
        self.snapshot.withLockedValue { snapshot in
            if let existing = snapshot.progress { return existing.progress }
            let made = TaskProgress { [weak self] in self?.cancel() }
            made.update(to: self.units(snapshot))
            snapshot.progress = made
            return made.progress
        }
    }

    private func units(_ snapshot: Snapshot) -> TaskProgress.Units {
        let sent = self.countOfBytesExpectedToSend
        guard snapshot.state != .completed else {
            let total = max(1, sent + (snapshot.bytesExpectedToReceive ?? snapshot.bytesReceived))
            let isAnswered = if case .success = snapshot.result { true } else { false }
            return .init(completed: isAnswered ? total : snapshot.bytesSent + snapshot.bytesReceived, total: total)
        }
        // One more than is there, so that it is finished by the completion alone.
        let total = sent + (snapshot.bytesExpectedToReceive ?? 0) + 1
        return .init(completed: snapshot.bytesSent + snapshot.bytesReceived, total: total)
    }

    /// What the call took, once it is complete. Nil for a task that was cancelled before the client took it up.
    public var metrics: SocketTaskMetrics? {
        guard self.state == .completed else { return nil }
        return self.client.metrics(of: self)
    }

    // MARK: Life

    /// Starts the call. The timeout counts from here. Does nothing unless the task is suspended.
    public func resume() {
        let starts = self.snapshot.withLockedValue { snapshot in
            guard snapshot.state == .suspended else { return false }
            snapshot.state = .running
            if self.client.needsContext { self.flight.context = ServiceContext.current ?? .topLevel }
            return true
        }
        if starts { self.submit(.start) }
    }

    /// Gives the call up: the server is told, with the request's ``SocketRequest/cancellationBody``, and the connection stays.
    /// Returns at once, with the state `canceling`; the completion follows.
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

    private enum Operation: UInt8 { case start, cancel, reprioritize }

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
            if case .success(let response) = result {
                snapshot.bytesReceived = response.body.readableBytes
                snapshot.bytesExpectedToReceive = response.body.readableBytes
            }
            if case .continuation = snapshot.completion {
                defer { snapshot.completion = .nobody }
                return snapshot.completion
            }
            return snapshot.completion
        }
    }

    /// So many bytes of the body have left. Returns whether somebody is to be told, by ``updateProgress()``.
    func progressed(bytesSent: Int) -> Bool {
        self.snapshot.withLockedValue { snapshot in
            snapshot.bytesSent = bytesSent
            return snapshot.progress?.mustSchedule() ?? false
        }
    }

    /// So many bytes of the answer's body have come, of so many. Returns the same.
    func progressed(bytesReceived: Int, of expected: Int) -> Bool {
        self.snapshot.withLockedValue { snapshot in
            snapshot.bytesReceived = bytesReceived
            snapshot.bytesExpectedToReceive = expected
            return snapshot.progress?.mustSchedule() ?? false
        }
    }

    /// The request leaves once more, or not at all: nothing of this attempt has been sent or received. Returns the same.
    func progressStartsOver() -> Bool {
        self.snapshot.withLockedValue { snapshot in
            snapshot.bytesSent = 0
            snapshot.bytesReceived = 0
            snapshot.bytesExpectedToReceive = nil
            return snapshot.progress?.mustSchedule() ?? false
        }
    }

    /// Whether there is a ``progress`` that the completion must be shown by.
    var showsProgress: Bool { self.snapshot.withLockedValue { $0.progress != nil } }

    /// Where callbacks run: shows how far the task is.
    func updateProgress() {
        let (progress, units) = self.snapshot.withLockedValue { ($0.progress?.begin(), self.units($0)) }
        progress?.update(to: units)
    }
}

extension SocketTask: SubmittedWork {
    package func performOnSocketThread(_ operation: UInt8) {
        switch Operation(rawValue: operation) {
        case .start: self.client.start(self)
        case .cancel: self.client.cancel(self)
        case .reprioritize: self.client.reprioritize(self)
        case nil: assertionFailure("unknown operation \(operation)")
        }
    }
}

extension SocketTask: CallbackWork {
    package func callBack() {
        let (completion, result, progress) = self.snapshot.withLockedValue { snapshot in
            defer { snapshot.completion = .nobody }
            return (snapshot.completion, snapshot.result, snapshot.progress)
        }
        if progress != nil { self.updateProgress() }
        if case .handler(let handler) = completion, let result { handler(result) }
    }
}

extension SocketTask: CustomStringConvertible {
    public var description: String {
        "task \(self.taskIdentifier) type \(self.originalRequest.type) \(self.state)"
    }
}
