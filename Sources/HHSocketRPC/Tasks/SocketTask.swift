// SPDX-License-Identifier: Apache-2.0
import Atomics
public import Foundation
import HHSocket
import NIOCore
import Tracing

/// A call. It is created suspended; ``resume()`` starts it, and it completes exactly once: with an answer, with an
/// error, or with `cancelled`.
///
/// Behaves like `URLSessionDataTask`: resuming twice, cancelling twice, cancelling before resuming and cancelling a
/// completed task are all harmless. A task that is never resumed or cancelled never completes, and leaks nothing.
public final class SocketTask: Sendable {
    public enum State: Sendable, Hashable {
        /// Not resumed yet.
        case suspended
        case running
        /// Cancelled; the completion follows, with `cancelled`, or with the answer if that had already arrived.
        case canceling
        case completed
    }

    typealias Handler = CallHandler

    /// The receiver of the result, notified once.
    enum Completion: Sendable {
        case nobody
        case handler(Handler)
        /// Resumed exactly once, by the code that removes it from the task under the lock; it finds the result in the
        /// task. Unchecked, because the size of a checked one is known only at run time, which would cost every task.
        case waiter(TurnWaiter)
        /// The call is a stream, which has its own receivers.
        case party(any CallParty)
    }

    private struct Snapshot {
        var completion: Completion
        // Not a single Result, which costs more to pass around.
        var response: SocketResponse?
        var failure: Failure?
        var priority: FramePriority
        var bytesSent = 0
        var bytesReceived = 0
        var bytesExpectedToReceive: Int?
        var progress: TaskProgress?

        /// Removes and returns the receiver. Moved, not copied, so that a handler's references are not counted again.
        mutating func takeCompletion() -> Completion {
            var completion = Completion.nobody
            swap(&completion, &self.completion)
            return completion
        }
    }

    /// A box for an error, which is large, and which few tasks have.
    private final class Failure: Sendable {
        let error: SocketError

        init(_ error: SocketError) {
            self.error = error
        }
    }

    /// The storage of ``word``, which must be the first property, whose address the runtime provides.
    ///
    /// Proof of `nonisolated(unsafe)`: once the task has been made, accessed only through ``word``, which is atomic.
    nonisolated(unsafe) private var wordStorage = UnsafeAtomic<TaskWord>.Storage(.suspended)
    /// The number of the task, unique among those of its client, from 1.
    public let taskIdentifier: Int
    /// The request that the task was made with.
    public let originalRequest: SocketRequest
    private let engine: CallEngine
    /// The queue on which the completion handler runs; nil for the client's.
    let callbackQueue: CallbackQueue?
    /// Whether its caller has only the ``taskIdentifier``.
    let isDispatched: Bool
    /// Whether the call is a stream.
    let isStream: Bool
    /// Whether only a caller that awaits it has the task: ``run(isolation:)`` hands it to the socket thread, and its
    /// completion hands it back.
    private let isAwaited: Bool
    /// Whether several threads may access the task at once.
    private let isLocked: Bool
    /// The state of an awaited task on the socket thread.
    private enum AwaitedState {
        /// The task has not arrived yet.
        case expected
        /// The cancellation has arrived before the task.
        case cancelled
        case begun
    }
    /// Proof of `nonisolated(unsafe)`: accessed only on the socket thread.
    nonisolated(unsafe) private var awaitedState = AwaitedState.expected
    /// One of the engine's locks. The task keeps the engine.
    private let lock: TaskLocks.TaskLock
    /// State that any thread may read.
    ///
    /// Proof of `nonisolated(unsafe)`: accessed under the lock of ``locked(_:)``. Without the lock only by the holder
    /// of the last reference, when no other code can reach the task (``isUnshared(_:)``), and if the task
    /// ``isAwaited``, by its caller until it is submitted, then by the socket thread until the caller is resumed.
    /// Unchecked, because a call accesses it four times, and each access ends before other code is called.
    #if !DEBUG && !CHECKED_EXCLUSIVITY
    @exclusivity(unchecked)
    #endif
    nonisolated(unsafe) private var snapshot: Snapshot

    /// The socket thread's part of the task.
    ///
    /// Proof of `nonisolated(unsafe)`: written only by the engine and its carriers, on the socket thread, and before
    /// that by the one thread whose ``resume()`` submits the task. Other threads read it after they have seen, under
    /// the lock, that the task is complete, which it becomes under that lock after the last write. Unchecked for the
    /// same reason.
    #if !DEBUG && !CHECKED_EXCLUSIVITY
    @exclusivity(unchecked)
    #endif
    nonisolated(unsafe) var flight = TaskFlight()

    init(
        identifier: Int,
        request: consuming SocketRequest,
        engine: CallEngine,
        completion: consuming Completion,
        callbackQueue: CallbackQueue? = nil,
        isDispatched: Bool = false,
        isStream: Bool = false,
        isAwaited: Bool = false
    ) {
        self.taskIdentifier = identifier
        self.isDispatched = isDispatched
        self.isStream = isStream
        self.isAwaited = isAwaited
        self.isLocked = !isAwaited || engine.traits.isUnderThreadSanitizer
        self.snapshot = Snapshot(completion: consume completion, priority: request.options.priority)
        self.originalRequest = consume request
        self.engine = engine
        self.callbackQueue = callbackQueue
        self.lock = engine.locks.lock(ofTask: identifier)
    }

    @inline(__always)
    private func locked<T>(_ body: (inout Snapshot) -> T) -> T {
        self.isLocked ? self.lock.with { body(&self.snapshot) } : body(&self.snapshot)
    }

    /// The state, including the marks that a sent request sets without the lock.
    @inline(__always)
    private var word: UnsafeAtomic<TaskWord> {
        UnsafeAtomic(
            at: _getUnsafePointerToStoredProperties(self).assumingMemoryBound(to: UnsafeAtomic<TaskWord>.Storage.self)
        )
    }

    public var state: State { self.word.load(ordering: .acquiring).state }

    /// The answer, once the task completed with one.
    public var response: SocketResponse? {
        self.locked { $0.response }
    }

    /// The error, once the task completed with one.
    public var error: SocketError? {
        self.locked { $0.failure?.error }
    }

    /// The priority among waiting calls; initially the request's. A task that already waits for a connection moves
    /// behind the others of its new priority; one that is queued behind a server that does not read keeps its place.
    public var priority: FramePriority {
        get { self.locked { $0.priority } }
        set {
            let isRunning = self.locked { snapshot in
                snapshot.priority = newValue
                return self.state == .running
            }
            if isRunning { self.engine.loop.submit(.work(self, Operation.reprioritize.rawValue)) }
        }
    }

    // MARK: Progress

    /// The number of bytes of the body that were taken from the queue, in the latest attempt; up to 128 KiB of them may
    /// not have reached the network yet.
    public var countOfBytesSent: Int { self.locked { self.bytesSent($0) } }

    private func bytesSent(_ snapshot: Snapshot) -> Int {
        self.word.load(ordering: .acquiring).isSentWhole ? self.countOfBytesExpectedToSend : snapshot.bytesSent
    }

    /// The length of the body in bytes.
    public var countOfBytesExpectedToSend: Int { self.originalRequest.body.readableBytes }

    /// The number of bytes of the answer's body that have arrived.
    public var countOfBytesReceived: Int { self.locked { $0.bytesReceived } }

    /// The length of the answer's body in bytes, once its header has arrived; if it arrives in pieces, the header of
    /// the last one.
    public var countOfBytesExpectedToReceive: Int? { self.locked { $0.bytesExpectedToReceive } }

    /// The progress as an object for user interfaces: bytes sent and received of those expected in all. Cancelling it
    /// cancels the task.
    ///
    /// It changes on the queue of the completion handler, and is finished when the handler is called. Where
    /// Foundation's `Progress` may not be used by several threads, as on Linux, read it on that queue.
    public var progress: Progress {
        self.locked { snapshot in
            if let existing = snapshot.progress { return existing.progress }
            let made = TaskProgress { [weak self] in self?.cancel() }
            // A request that is sent later sees the change; one that was sent before counts.
            self.word.update { word in
                var word = word
                word.hasProgress = true
                return word
            }
            made.update(to: self.units(snapshot))
            snapshot.progress = made
            return made.progress
        }
    }

    private func units(_ snapshot: Snapshot) -> TaskProgress.Units {
        let sent = self.countOfBytesExpectedToSend
        let completed = self.bytesSent(snapshot) + snapshot.bytesReceived
        guard self.state != .completed else {
            let total = max(1, sent + (snapshot.bytesExpectedToReceive ?? snapshot.bytesReceived))
            return .init(
                completed: snapshot.response != nil ? total : completed,
                total: total
            )
        }
        // One unit more than there are bytes, so that only the completion finishes it.
        let total = sent + (snapshot.bytesExpectedToReceive ?? snapshot.bytesReceived) + 1
        return .init(completed: completed, total: total)
    }

    /// The metrics of the call, once it is complete. Nil for a task that was cancelled before the client accepted it.
    public var metrics: SocketTaskMetrics? {
        guard self.state == .completed else { return nil }
        return SocketTaskMetrics(self.flight, by: self.engine.configuration.socket.time)
    }

    // MARK: Life

    /// Starts the call. The timeout begins here. Does nothing unless the task is suspended.
    public func resume() {
        if self.engine.startOnFastPath(self) { return }
        if self.begins() { self.submit(.work(self, Operation.start.rawValue)) }
    }

    /// Starts a stream's call, like ``resume()``.
    ///
    /// - Parameter begin: Begins it on the socket thread.
    func resumeStream(_ begin: @escaping @Sendable (inout Turn) -> Void) {
        if self.begins() { self.submit(.closure(begin)) }
    }

    /// Sets a suspended task running, and the values of the socket thread's part that it needs before it is submitted.
    /// False if it is in another state.
    private func begins() -> Bool {
        // A cancellation from another thread, which is submitted as well, follows these changes.
        self.locked { _ in
            guard self.word.update({ $0.state == .suspended ? $0.with(.running) : nil }) else { return false }
            if self.engine.traits.needsContext { self.flight.context = ServiceContext.current ?? .topLevel }
            return true
        }
    }

    /// Cancels the call: the server is notified, with the request's ``CallOptions/cancellationBody``, and the
    /// connection stays. Returns at once, with the state `canceling`; the completion follows.
    public func cancel() {
        if self.beginCancelling() { self.submit(.work(self, Operation.cancel.rawValue)) }
    }

    // MARK: Awaited

    /// Starts an awaited task, and returns once it has its result. Cancelling the Swift task cancels the call.
    ///
    /// - Parameter isolation: The caller's.
    func run(isolation: isolated (any Actor)? = #isolation) async {
        await withTaskCancellationHandler {
            // A closure that captures the isolation runs in it. Otherwise it would begin elsewhere, and hop back.
            _ = isolation
            await withUnsafeContinuation { self.resume(resuming: $0) }
        } onCancel: {
            // The task may already belong to the socket thread.
            self.engine.loop.submit(.work(self, Operation.cancel.rawValue))
        }
    }

    private func resume(resuming continuation: UnsafeContinuation<Void, Never>) {
        let waiter = TurnWaiter(continuation, isHere: self.engine.loop.isCurrent)
        if waiter.isHere, self.engine.startOnFastPath(self, waiter) { return self.awaitedState = .begun }
        self.locked { $0.completion = .waiter(waiter) }
        self.word.store(TaskWord(.running), ordering: .releasing)
        if self.engine.traits.needsContext { self.flight.context = ServiceContext.current ?? .topLevel }
        self.submit(.work(self, Operation.start.rawValue))
    }

    /// Returns the result of a complete task whose result is not used elsewhere. Must be called only once.
    func takeResult() -> Result<SocketResponse, SocketError> {
        self.locked { snapshot in
            var response: SocketResponse?
            swap(&response, &snapshot.response)
            if let response { return .success(response) }
            assert(snapshot.failure != nil, "a waiting caller is resumed once the task has its result")
            return .failure(snapshot.failure?.error ?? CallErrors.released)
        }
    }

    /// Records on the socket thread that an awaited task has arrived or is cancelled. Returns whether the operation
    /// must be performed.
    private func noteAwaited(_ operation: Operation, in turn: inout Turn) -> Bool {
        switch (operation, self.awaitedState) {
        case (.start, .cancelled):
            self.engine.cancel(self, in: &turn)
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

    // MARK: For the engine

    /// Begins to cancel the task. False if it was being cancelled, or complete, already.
    func beginCancelling() -> Bool {
        self.locked { _ in
            self.word.update { $0.state == .suspended || $0.state == .running ? $0.with(.canceling) : nil }
        }
    }

    private enum Operation: UInt8 { case start, cancel, reprioritize }

    private func submit(_ submission: Submission) {
        guard !self.engine.loop.submit(submission) else { return }
        // The client was released, and with it the thread and the table that complete tasks.
        switch self.finish(CallErrors.released) {
        case .none, .unheard, .takenHandler: break
        case .waiter(let waiter, _): waiter.resume()
        case .handler: (self.callbackQueue ?? self.engine.loop.callbackQueue).run { self.callBack() }
        case .party(let party, _): party.ended(self.takeResult()) { $0.resume() }
        }
    }

    /// Sets a new task running whose request has been sent at `time`, with all bytes of its body.
    func wasSentLight(_ key: DispatchKey, at time: NIODeadline, until deadline: NIODeadline) {
        let length = self.countOfBytesExpectedToSend
        self.word.store(TaskWord(.running), ordering: .releasing)
        self.snapshot.bytesSent = length
        self.flight.isSentOnFastPath(key, at: time, until: deadline, bytes: length)
    }

    /// Sets a task in this state running, with all bytes of its body sent. False, without effect, if it is in another
    /// state or its progress is observed.
    ///
    /// - Parameter waiter: Notified when the task completes; nil keeps its present receiver. For an awaited task, which
    ///   only the caller accesses now.
    func leaves(from state: State, _ waiter: TurnWaiter?) -> Bool {
        let (leaves, _) = self.word.compareExchange(
            expected: TaskWord(state),
            desired: TaskWord(.running, isSentWhole: true),
            ordering: .acquiringAndReleasing
        )
        if leaves, let waiter { self.locked { $0.completion = .waiter(waiter) } }
        return leaves
    }

    // The following functions are for a task that only the caller can access, and need no lock.

    /// Whether only the caller has a strong or weak reference to the task. Unowned references do not count: code that
    /// uses one must know that the task is retained elsewhere.
    static func isUnshared(_ task: inout SocketTask) -> Bool {
        isKnownUniquelyReferenced(&task) && _getWeakRetainCount(task) <= 1
    }

    /// Whether such a task requires nothing but a call of its handler, on the client's callback queue.
    var hasHandlerAlone: Bool {
        guard self.callbackQueue == nil, self.snapshot.progress == nil, case .handler = self.snapshot.completion else {
            return false
        }
        return true
    }

    /// Completes such a task, like ``finish(_:takingHandler:)``.
    func finishUnshared(_ response: consuming SocketResponse) {
        self.snapshot.response = consume response
        self.word.store(self.word.load(ordering: .relaxed).with(.completed), ordering: .releasing)
    }

    /// Removes and returns the handler of such a task, which then does not record its own completion.
    func takeHandlerOfUnshared() -> Handler? {
        guard case .handler(let handler) = self.snapshot.takeCompletion() else { return nil }
        return handler
    }

    /// The priority of a running task; nil if it is not running, as when it is being cancelled or complete.
    func begin() -> FramePriority? {
        self.locked { self.state == .running ? $0.priority : nil }
    }

    /// The step that follows the completion of a task.
    enum Ending {
        /// The task had completed before.
        case none
        /// There is no handler and no waiting caller; `showsProgress` if there is a ``progress`` to update.
        case unheard(showsProgress: Bool)
        /// The handler must be called, by ``callBack()``.
        case handler
        /// The handler, which was removed from the task, must be called.
        case takenHandler(Handler)
        case waiter(TurnWaiter, showsProgress: Bool)
        case party(any CallParty, showsProgress: Bool)
    }

    /// The request that is sent for the task: its own, or the one that interceptors made of it.
    var request: SocketRequest { self.flight.request ?? self.originalRequest }

    /// Completes the task, and notifies its receiver, where handlers run. Socket thread only.
    func complete(_ error: SocketError, in turn: inout Turn) {
        let ending = self.finish(error, takingHandler: self.callsBackHere)
        if case .takenHandler(let handler) = ending {
            return turn.run(CompletedCall(task: self, handler: handler, result: .failure(error)))
        }
        self.deliver(ending, in: &turn)
    }

    /// Completes the task with an answer, and notifies its receiver, where handlers run. Socket thread only.
    func complete(_ response: SocketResponse, in turn: inout Turn) {
        let ending = self.finish(response, takingHandler: self.callsBackHere)
        if case .takenHandler(let handler) = ending {
            return turn.run(CompletedCall(task: self, handler: handler, result: .success(response)))
        }
        self.deliver(ending, in: &turn)
    }

    /// Whether the handler runs on the socket thread.
    private var callsBackHere: Bool { self.engine.traits.callsBackHere && self.callbackQueue == nil }

    private func deliver(_ ending: Ending, in turn: inout Turn) {
        switch ending {
        case .none, .takenHandler, .unheard(showsProgress: false):
            break
        case .handler:
            turn.callBack(.work(self), on: self.callbackQueue)
        case .unheard(showsProgress: true):
            self.showProgress(in: &turn)
        case .waiter(let waiter, let showsProgress):
            if showsProgress { self.showProgress(in: &turn) }
            turn.resume(waiter)
        case .party(let party, let showsProgress):
            if showsProgress { self.showProgress(in: &turn) }
            party.ended(self.takeResult()) { turn.resume($0) }
        }
    }

    /// Completes the task.
    ///
    /// - Parameter takingHandler: Whether the caller of this function also calls the handler.
    func finish(_ error: SocketError, takingHandler: Bool = false) -> Ending {
        self.locked { snapshot in
            guard self.state != .completed else { return .none }
            snapshot.failure = Failure(error)
            return self.end(&snapshot, takingHandler)
        }
    }

    /// Completes the task with an answer.
    func finish(_ response: SocketResponse, takingHandler: Bool) -> Ending {
        self.locked { snapshot in
            guard self.state != .completed else { return .none }
            snapshot.bytesReceived = response.body.readableBytes
            snapshot.bytesExpectedToReceive = response.body.readableBytes
            snapshot.response = response
            return self.end(&snapshot, takingHandler)
        }
    }

    @inline(__always)
    private func end(_ snapshot: inout Snapshot, _ takesHandler: Bool) -> Ending {
        self.word.update { $0.with(.completed) }
        let showsProgress = snapshot.progress != nil
        if !takesHandler || showsProgress, case .handler = snapshot.completion { return .handler }
        switch snapshot.takeCompletion() {
        case .handler(let handler): return .takenHandler(handler)
        case .nobody: return .unheard(showsProgress: showsProgress)
        case .waiter(let waiter): return .waiter(waiter, showsProgress: showsProgress)
        case .party(let party): return .party(party, showsProgress: showsProgress)
        }
    }

    /// Records that `payloadBytes` of the payload of `request` have been sent. Returns whether those are all.
    func sent(payloadBytes: Int, of request: SocketRequest, in turn: inout Turn) -> Bool {
        let length = request.body.readableBytes
        let isWhole = payloadBytes == self.flight.payloadLength ?? length
        // If the payload contains more than the body, the body's last byte counts as sent only with the whole payload.
        let bytesSent = isWhole ? length : min(payloadBytes, max(0, length - 1))
        let mustShow = self.locked { snapshot in
            snapshot.bytesSent = bytesSent
            return snapshot.progress?.mustSchedule() ?? false
        }
        if mustShow { self.showProgress(in: &turn) }
        if isWhole { self.flight.bytesSent += length }
        return isWhole
    }

    /// Records that `bytesReceived` of `expected` bytes of the answer's body have arrived; nil while their number is
    /// not known. Returns whether ``updateProgress()`` must be called.
    func progressed(bytesReceived: Int, of expected: Int?) -> Bool {
        self.locked { snapshot in
            snapshot.bytesReceived = bytesReceived
            snapshot.bytesExpectedToReceive = expected
            return snapshot.progress?.mustSchedule() ?? false
        }
    }

    /// Resets the progress for another attempt. Returns whether ``updateProgress()`` must be called.
    func progressStartsOver() -> Bool {
        self.locked { snapshot in
            self.word.update { word in
                var word = word
                word.isSentWhole = false
                return word
            }
            snapshot.bytesSent = 0
            snapshot.bytesReceived = 0
            snapshot.bytesExpectedToReceive = nil
            return snapshot.progress?.mustSchedule() ?? false
        }
    }

    /// Schedules ``updateProgress()`` on the callback queue.
    func showProgress(in turn: inout Turn) {
        turn.callBack(.closure { self.updateProgress() }, on: self.callbackQueue)
    }

    /// Updates the `Progress`, on the callback queue.
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
        case .start: self.engine.start(self, in: &turn)
        case .cancel: self.engine.cancel(self, in: &turn)
        case .reprioritize: self.engine.reprioritize(self)
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

extension SocketTask {
    /// Makes a task for a call that cannot be light, or no longer.
    convenience init(_ call: LightCall, engine: CallEngine) {
        let completion: Completion =
            if let handler = call.receiver.handler {
                .handler(handler)
            } else if let waiter = call.receiver.waiter {
                .handler { waiter.resume(returning: $0) }
            } else {
                .nobody
            }
        self.init(
            identifier: call.identifier,
            request: call.request,
            engine: engine,
            completion: completion,
            // A caller that awaits the result continues whatever becomes of the callback queue.
            callbackQueue: call.receiver.waiter == nil ? nil : .socketThread,
            isDispatched: true
        )
    }
}

extension TaskWord {
    init(_ state: SocketTask.State, isSentWhole: Bool = false) {
        let number: UInt8 =
            switch state {
            case .suspended: 0
            case .running: 1
            case .canceling: 2
            case .completed: 3
            }
        self.init(state: number, isSentWhole: isSentWhole)
    }

    var state: SocketTask.State {
        switch self.stateNumber {
        case 0: .suspended
        case 1: .running
        case 2: .canceling
        default: .completed
        }
    }

    /// This word with another state and the same marks.
    func with(_ state: SocketTask.State) -> Self { self.with(state: Self(state).rawValue) }
}

/// The handler of a completed call, which runs when no state is being accessed. Keeps the task until then, so that weak
/// references to it stay valid.
private struct CompletedCall: TurnHandler {
    let task: SocketTask
    let handler: CallHandler
    let result: CallOutcome

    static func run(at place: UnsafeMutableRawPointer) {
        let call = place.takeHandler(Self.self)
        call.handler(call.result)
        withExtendedLifetime(call.task) {}
    }
}
