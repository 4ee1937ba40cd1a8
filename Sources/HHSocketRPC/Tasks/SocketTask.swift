public import Foundation
import HHSocket
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

    typealias Handler = @Sendable (Result<SocketResponse, SocketError>) -> Void

    /// The receiver of the result, notified once.
    enum Completion: Sendable {
        case nobody
        case handler(Handler)
        /// Finds the result in the task. Resumed once, for who takes it out of the task resumes it. Not a checked one:
        /// its size is known at run time alone, and every task would pay for that.
        case waiter(TurnWaiter)
    }

    private struct Snapshot {
        var state = State.suspended
        var completion: Completion
        // Not one Result: that costs more to hand around.
        var response: SocketResponse?
        var failure: Failure?
        var priority: FramePriority
        var bytesSent = 0
        var bytesReceived = 0
        var bytesExpectedToReceive: Int?
        var progress: TaskProgress?

        /// Takes the receiver out. Moved, not copied: a handler's references are not counted once more.
        mutating func takeCompletion() -> Completion {
            var completion = Completion.nobody
            swap(&completion, &self.completion)
            return completion
        }
    }

    /// An error, which is large, and which few tasks have.
    private final class Failure: Sendable {
        let error: SocketError

        init(_ error: SocketError) {
            self.error = error
        }
    }

    /// Unique among the tasks of a client, from 1.
    public let taskIdentifier: Int
    /// The request the task was made with.
    public let originalRequest: SocketRequest
    private let client: ClientCore
    /// The queue on which the completion handler runs; nil for the client's.
    let callbackQueue: CallbackQueue?
    /// Whether its caller knows it by ``taskIdentifier`` alone.
    let isDispatched: Bool
    /// Whether nobody but its caller, who waits for it, knows it: ``run()`` hands it to the socket thread, and the end
    /// hands it back.
    private let isAwaited: Bool
    /// Whether several threads may look at the task at once.
    private let isLocked: Bool
    /// The socket thread's part of an awaited task.
    private enum AwaitedState {
        /// It has not come yet.
        case expected
        /// It has not come yet, and has been cancelled.
        case cancelled
        case begun
    }
    /// Proof of `nonisolated(unsafe)`: touched on the socket thread alone.
    nonisolated(unsafe) private var awaitedState = AwaitedState.expected
    /// Belongs to the client, which is kept.
    private let lock: TaskLocks.TaskLock
    /// State that any thread may read.
    /// Proof of `nonisolated(unsafe)`: touched under the lock of ``locked(_:)`` alone; without it, by who has the last
    /// reference, when nobody can reach the task any more, as ``isUnshared(_:)`` finds out, and where it ``isAwaited``,
    /// when it is the caller's until it is submitted, then the socket thread's until the caller is resumed. Unchecked,
    /// because a call touches it four times, and each access ends before anybody else is called.
    #if !DEBUG && !CHECKED_EXCLUSIVITY
    @exclusivity(unchecked)
    #endif
    nonisolated(unsafe) private var snapshot: Snapshot

    /// The socket thread's part of the task.
    /// Proof of `nonisolated(unsafe)`: written by ClientCore alone, on the socket thread, and before that by the one
    /// thread whose ``resume()`` submits the task. Others read it after they have seen under the lock that the task is
    /// complete, which it becomes under that lock when the last has been written. Unchecked for the same reason.
    #if !DEBUG && !CHECKED_EXCLUSIVITY
    @exclusivity(unchecked)
    #endif
    nonisolated(unsafe) var flight = TaskFlight()

    init(
        identifier: Int,
        request: consuming SocketRequest,
        client: ClientCore,
        completion: consuming Completion,
        callbackQueue: CallbackQueue? = nil,
        isDispatched: Bool = false,
        isAwaited: Bool = false
    ) {
        self.taskIdentifier = identifier
        self.isDispatched = isDispatched
        self.isAwaited = isAwaited
        self.isLocked = !isAwaited || client.traits.isUnderThreadSanitizer
        self.snapshot = Snapshot(completion: consume completion, priority: request.options.priority)
        self.originalRequest = consume request
        self.client = client
        self.callbackQueue = callbackQueue
        self.lock = client.locks.lock(ofTask: identifier)
    }

    @inline(__always)
    private func locked<T>(_ body: (inout Snapshot) -> T) -> T {
        self.isLocked ? self.lock.with { body(&self.snapshot) } : body(&self.snapshot)
    }

    public var state: State { self.locked { $0.state } }

    /// The answer, once the task completed with one.
    public var response: SocketResponse? {
        self.locked { $0.response }
    }

    /// The error, once the task completed with one.
    public var error: SocketError? {
        self.locked { $0.failure?.error }
    }

    /// Which of the calls that wait leaves first; the request's at first. A task that already waits for a connection
    /// changes its place, behind others of the same priority; one that stands behind a server which does not read keeps
    /// it.
    public var priority: FramePriority {
        get { self.locked { $0.priority } }
        set {
            let isRunning = self.locked { snapshot in
                snapshot.priority = newValue
                return snapshot.state == .running
            }
            if isRunning { _ = self.client.submit(.work(self, Operation.reprioritize.rawValue)) }
        }
    }

    // MARK: Progress

    /// The number of bytes of the body that were taken from the queue, in the latest attempt; up to 128 KiB of them may
    /// not have reached the network yet.
    public var countOfBytesSent: Int { self.locked { $0.bytesSent } }

    /// The length of the body in bytes.
    public var countOfBytesExpectedToSend: Int { self.originalRequest.body.readableBytes }

    /// The number of bytes of the answer's body that have arrived.
    public var countOfBytesReceived: Int { self.locked { $0.bytesReceived } }

    /// The length of the answer's body in bytes, once its header has come.
    public var countOfBytesExpectedToReceive: Int? { self.locked { $0.bytesExpectedToReceive } }

    /// The progress as an object for user interfaces: bytes sent and received of those expected in all. Cancelling it
    /// cancels the task.
    ///
    /// Changes where the completion handler runs, and is finished when that is called. Where Foundation's `Progress`
    /// may not be used by several threads, as on Linux, read it there.
    public var progress: Progress {
        self.locked { snapshot in
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
            return .init(
                completed: snapshot.response != nil ? total : snapshot.bytesSent + snapshot.bytesReceived,
                total: total
            )
        }
        // One more than is there, so that it is finished by the completion alone.
        let total = sent + (snapshot.bytesExpectedToReceive ?? 0) + 1
        return .init(completed: snapshot.bytesSent + snapshot.bytesReceived, total: total)
    }

    /// The metrics of the call, once it is complete. Nil for a task that was cancelled before the client took it up.
    public var metrics: SocketTaskMetrics? {
        guard self.state == .completed else { return nil }
        return self.client.metrics(of: self)
    }

    // MARK: Life

    /// Starts the call. The timeout counts from here. Does nothing unless the task is suspended.
    public func resume() {
        if self.client.startOnFastPath(self) { return }
        let starts = self.locked { snapshot in
            guard snapshot.state == .suspended else { return false }
            snapshot.state = .running
            if self.client.traits.needsContext { self.flight.context = ServiceContext.current ?? .topLevel }
            return true
        }
        if starts { self.submit(.start) }
    }

    /// Cancels the call: the server is notified, with the request's ``SocketRequest/cancellationBody``, and the
    /// connection stays. Returns at once, with the state `canceling`; the completion follows.
    public func cancel() {
        if self.beginCancelling() { self.submit(.cancel) }
    }

    // MARK: Awaited

    /// Starts an awaited task, and returns once it has its result. Cancelling the Swift task cancels the call.
    ///
    /// - Parameter isolation: The caller's.
    func run(isolation: isolated (any Actor)? = #isolation) async {
        await withTaskCancellationHandler {
            // What captures the isolation has it. Else it would begin elsewhere, and come back.
            _ = isolation
            await withUnsafeContinuation { self.resume(resuming: $0) }
        } onCancel: {
            // The task may be the socket thread's by now.
            _ = self.client.submit(.work(self, Operation.cancel.rawValue))
        }
    }

    private func resume(resuming continuation: UnsafeContinuation<Void, Never>) {
        let waiter = TurnWaiter(continuation, isHere: self.client.loop.isCurrent)
        if waiter.isHere, self.client.startOnFastPath(self, waiter) { return self.awaitedState = .begun }
        self.locked { snapshot in
            snapshot.state = .running
            snapshot.completion = .waiter(waiter)
        }
        if self.client.traits.needsContext { self.flight.context = ServiceContext.current ?? .topLevel }
        self.submit(.start)
    }

    /// The result of an awaited task, once.
    func takeResult() -> Result<SocketResponse, SocketError> {
        self.locked { snapshot in
            var response: SocketResponse?
            swap(&response, &snapshot.response)
            if let response { return .success(response) }
            assert(snapshot.failure != nil, "who waits for a task is resumed once it has its result")
            return .failure(snapshot.failure?.error ?? ClientCore.released)
        }
    }

    /// Notes on the socket thread that an awaited task has come, or is cancelled. Returns whether it is to be started
    /// or cancelled.
    private func noteAwaited(_ operation: Operation, in turn: inout Turn) -> Bool {
        switch (operation, self.awaitedState) {
        case (.start, .cancelled):
            self.client.cancel(self, in: &turn)
            return false
        case (.start, _):
            self.awaitedState = .begun
            return true
        case (.cancel, .begun):
            return self.beginCancelling()
        case (.cancel, _):
            self.awaitedState = .cancelled
            return false
        case (.reprioritize, _):
            return true
        }
    }

    // MARK: For ClientCore

    /// - Returns: Whether the task was not being cancelled, or complete, before.
    func beginCancelling() -> Bool {
        self.locked { snapshot in
            guard snapshot.state == .suspended || snapshot.state == .running else { return false }
            snapshot.state = .canceling
            return true
        }
    }

    private enum Operation: UInt8 { case start, cancel, reprioritize }

    private func submit(_ operation: Operation) {
        guard !self.client.submit(.work(self, operation.rawValue)) else { return }
        // The client is gone, and with it the thread and the table that complete tasks.
        switch self.finish(ClientCore.released) {
        case .none, .unheard, .takenHandler: break
        case .waiter(let waiter, _): waiter.resume()
        case .handler: self.client.callBackAfterInvalidation(self)
        }
    }

    /// Whether a task in this state leaves at once with all `length` bytes of its body; it runs then. False also if
    /// its progress is observed.
    ///
    /// - Parameter waiter: Notified when it completes; nil: the receiver stays.
    func leaves(from state: State, _ waiter: TurnWaiter?, bytesSent length: Int) -> Bool {
        self.locked { snapshot in
            guard snapshot.state == state, snapshot.progress == nil else { return false }
            snapshot.state = .running
            snapshot.bytesSent = length
            if let waiter { snapshot.completion = .waiter(waiter) }
            return true
        }
    }

    // What follows is for a task that nobody but the caller can look at any more: it need not be locked.

    /// Whether nobody but the caller has a reference to the task, or a weak one that could become one. Unowned ones do
    /// not count: who follows one has to know that somebody else keeps the task.
    static func isUnshared(_ task: inout SocketTask) -> Bool {
        isKnownUniquelyReferenced(&task) && _getWeakRetainCount(task) <= 1
    }

    /// Whether such a task has a handler, for where the client's handlers run, and all there is to do is to call that.
    var hasHandlerAlone: Bool {
        guard self.callbackQueue == nil, self.snapshot.progress == nil, case .handler = self.snapshot.completion else {
            return false
        }
        return true
    }

    /// Completes such a task, as ``finish(_:takingHandler:)`` does.
    func finishUnshared(_ response: consuming SocketResponse) {
        self.snapshot.state = .completed
        self.snapshot.response = response
    }

    /// The handler of such a task, which then does not even know how it ended.
    func takeHandlerOfUnshared() -> Handler? {
        guard case .handler(let handler) = self.snapshot.takeCompletion() else { return nil }
        return handler
    }

    /// Whether the task has been resumed and is neither being cancelled nor complete; and with which priority.
    func begin() -> FramePriority? {
        self.locked { $0.state == .running ? $0.priority : nil }
    }

    /// The steps that follow for a task that has just completed.
    enum Ending {
        /// It had completed before.
        case none
        /// Nobody waits for it; whether there is a ``progress`` that shows it.
        case unheard(showsProgress: Bool)
        /// Its handler is to be called, by ``callBack()``.
        case handler
        /// Its handler is to be called, and is not the task's any more.
        case takenHandler(Handler)
        case waiter(TurnWaiter, showsProgress: Bool)
    }

    /// Completes the task.
    ///
    /// - Parameter takingHandler: Whether who calls this also calls the handler.
    func finish(_ error: SocketError, takingHandler: Bool = false) -> Ending {
        self.locked { snapshot in
            guard snapshot.state != .completed else { return .none }
            snapshot.failure = Failure(error)
            return Self.end(&snapshot, takingHandler)
        }
    }

    /// Completes the task with an answer.
    func finish(_ response: SocketResponse, takingHandler: Bool) -> Ending {
        self.locked { snapshot in
            guard snapshot.state != .completed else { return .none }
            snapshot.bytesReceived = response.body.readableBytes
            snapshot.bytesExpectedToReceive = response.body.readableBytes
            snapshot.response = response
            return Self.end(&snapshot, takingHandler)
        }
    }

    @inline(__always)
    private static func end(_ snapshot: inout Snapshot, _ takesHandler: Bool) -> Ending {
        snapshot.state = .completed
        let showsProgress = snapshot.progress != nil
        if !takesHandler || showsProgress, case .handler = snapshot.completion { return .handler }
        switch snapshot.takeCompletion() {
        case .handler(let handler): return .takenHandler(handler)
        case .nobody: return .unheard(showsProgress: showsProgress)
        case .waiter(let waiter): return .waiter(waiter, showsProgress: showsProgress)
        }
    }

    /// Records how many bytes of the body have left. Returns whether to call ``updateProgress()``.
    func progressed(bytesSent: Int) -> Bool {
        self.locked { snapshot in
            snapshot.bytesSent = bytesSent
            return snapshot.progress?.mustSchedule() ?? false
        }
    }

    /// Records how many bytes of the answer's body have arrived, and of how many. Returns the progress.
    func progressed(bytesReceived: Int, of expected: Int) -> Bool {
        self.locked { snapshot in
            snapshot.bytesReceived = bytesReceived
            snapshot.bytesExpectedToReceive = expected
            return snapshot.progress?.mustSchedule() ?? false
        }
    }

    /// The request leaves once more, or not at all: nothing of this attempt has been sent or received. Returns the
    /// same.
    func progressStartsOver() -> Bool {
        self.locked { snapshot in
            snapshot.bytesSent = 0
            snapshot.bytesReceived = 0
            snapshot.bytesExpectedToReceive = nil
            return snapshot.progress?.mustSchedule() ?? false
        }
    }

    /// Updates the `Progress`, on the queue of callbacks.
    func updateProgress() {
        let (progress, units) = self.locked { ($0.progress?.begin(), self.units($0)) }
        progress?.update(to: units)
    }
}

extension SocketTask: SubmittedWork {
    package func performOnSocketThread(_ operation: UInt8, in turn: inout Turn) {
        guard let operation = Operation(rawValue: operation) else {
            return assertionFailure("unknown operation \(operation)")
        }
        if self.isAwaited, !self.noteAwaited(operation, in: &turn) { return }
        switch operation {
        case .start: self.client.start(self, in: &turn)
        case .cancel: self.client.cancel(self, in: &turn)
        case .reprioritize: self.client.reprioritize(self)
        }
    }
}

extension SocketTask: CallbackWork {
    package func callBack() {
        let (completion, response, error, showsProgress) = self.locked { snapshot in
            let completion = snapshot.takeCompletion()
            return (completion, snapshot.response, snapshot.failure?.error, snapshot.progress != nil)
        }
        if showsProgress { self.updateProgress() }
        guard case .handler(let handler) = completion else { return }
        if let response {
            handler(.success(response))
        } else if let error {
            handler(.failure(error))
        }
    }
}

extension SocketTask: CustomStringConvertible {
    public var description: String {
        "task \(self.taskIdentifier) type \(self.originalRequest.type) \(self.state)"
    }
}
