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

    /// The receiver of the result, notified once.
    enum Completion: Sendable {
        case nobody
        case handler(CallHandler)
        /// The call is a stream, which has its own receivers.
        case party(any CallParty)
    }

    private struct Snapshot {
        var completion: Completion
        // Not a single Result, which costs more to pass around.
        var response: SocketResponse?
        var priority: FramePriority
        var bytesSent = 0
        var bytesReceived = 0
        var bytesExpectedToReceive: Int?
        private(set) var rare: Rare?

        var progress: TaskProgress? { self.rare?.progress }
        var error: SocketError? { self.rare?.error }

        mutating func changeRare(_ change: (Rare) -> Void) {
            let rare = self.rare ?? Rare()
            change(rare)
            self.rare = rare
        }

        /// Stores the answer, and its length as the progress.
        mutating func isAnswered(_ response: SocketResponse) {
            self.bytesReceived = response.body.readableBytes
            self.bytesExpectedToReceive = response.body.readableBytes
            self.response = response
        }

        /// Removes and returns the receiver. Moved, not copied, so that a handler's references are not counted again.
        mutating func takeCompletion() -> Completion {
            var completion = Completion.nobody
            swap(&completion, &self.completion)
            return completion
        }
    }

    /// Properties that few tasks have, behind one reference that is nil for the others. Accessed like the snapshot.
    private final class Rare {
        fileprivate var error: SocketError?
        fileprivate var progress: TaskProgress?
        /// The span context of the caller that resumed the task.
        fileprivate var context: ServiceContext?
        /// The server that the request was sent to last, unless it is the answer's.
        fileprivate var origin: SocketResponse.Origin?
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
    /// One of the engine's locks. The task keeps the engine.
    private let lock: TaskLocks.TaskLock
    /// State that any thread may read.
    ///
    /// Proof of `nonisolated(unsafe)`: accessed under the lock of ``locked(_:)``. Without the lock only by the holder
    /// of the last reference, when no other code can reach the task (``isUnshared(_:)``). Unchecked, because a call
    /// accesses it four times, and each access ends before other code is called.
    #if !DEBUG && !CHECKED_EXCLUSIVITY
    @exclusivity(unchecked)
    #endif
    nonisolated(unsafe) private var snapshot: Snapshot

    /// The socket thread's part of the task.
    private struct Part {
        /// The key of the call once it is in the table.
        var key: DispatchKey?
        /// The record of a complete task.
        var record = CallRecord()
        /// Whether the server of a complete task is that of its answer.
        var isAtOriginOfAnswer = false
    }

    /// Proof of `nonisolated(unsafe)`: accessed only on the socket thread. Other threads read the record after they
    /// have seen that the task is complete, which it becomes under the lock after the last write. Unchecked for the
    /// same reason as the snapshot.
    #if !DEBUG && !CHECKED_EXCLUSIVITY
    @exclusivity(unchecked)
    #endif
    nonisolated(unsafe) private var part = Part()

    init(
        identifier: Int,
        request: consuming SocketRequest,
        engine: CallEngine,
        completion: consuming Completion,
        callbackQueue: CallbackQueue? = nil,
        isDispatched: Bool = false,
        isStream: Bool = false
    ) {
        self.taskIdentifier = identifier
        self.isDispatched = isDispatched
        self.isStream = isStream
        self.snapshot = Snapshot(completion: consume completion, priority: request.options.priority)
        self.originalRequest = consume request
        self.engine = engine
        self.callbackQueue = callbackQueue
        self.lock = engine.locks.lock(ofTask: identifier)
    }

    @inline(__always)
    private func locked<T>(_ body: (inout Snapshot) -> T) -> T {
        self.lock.with { body(&self.snapshot) }
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
        self.locked { $0.error }
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
    package var countOfBytesExpectedToSend: Int { self.originalRequest.body.readableBytes }

    /// The number of bytes of the answer's body that have arrived.
    public var countOfBytesReceived: Int { self.locked { $0.bytesReceived } }

    /// The length of the answer's body in bytes, once its header has arrived; if it arrives in pieces, the header of
    /// the last one.
    package var countOfBytesExpectedToReceive: Int? { self.locked { $0.bytesExpectedToReceive } }

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
            snapshot.changeRare { $0.progress = made }
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
        let server = self.locked { self.part.isAtOriginOfAnswer ? $0.response?.endpoint : $0.rare?.origin?.endpoint }
        return SocketTaskMetrics(self.part.record, server: server, by: self.engine.configuration.socket.time)
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

    /// Sets a suspended task running, and stores its context. False if it is in another state.
    private func begins() -> Bool {
        // A cancellation from another thread, which is submitted as well, follows these changes.
        self.locked { snapshot in
            guard self.word.update({ $0.state == .suspended ? $0.with(.running) : nil }) else { return false }
            if self.engine.traits.needsContext {
                snapshot.changeRare { $0.context = ServiceContext.current ?? .topLevel }
            }
            return true
        }
    }

    /// Cancels the call: the server is notified, with the request's ``CallOptions/cancellationBody``, and the
    /// connection stays. Returns at once, with the state `canceling`; the completion follows.
    public func cancel() {
        if self.beginCancelling() { self.submit(.work(self, Operation.cancel.rawValue)) }
    }

    /// Returns the result of a complete task whose result is not used elsewhere. Must be called only once.
    func takeResult() -> Result<SocketResponse, SocketError> {
        self.locked { snapshot in
            var response: SocketResponse?
            swap(&response, &snapshot.response)
            if let response { return .success(response) }
            assert(snapshot.error != nil, "a party is notified once the task has its result")
            return .failure(snapshot.error ?? CallErrors.released)
        }
    }

    // MARK: For the engine

    /// The number by which the call can be cancelled; 0 for none.
    var identifierToCancel: Int { self.isDispatched ? self.taskIdentifier : 0 }

    /// Records that the call is in the table. Socket thread only.
    func enters(_ key: DispatchKey) { self.part.key = key }

    /// The key of the call once it is in the table. Socket thread only.
    var latestKey: DispatchKey? { self.part.key }

    /// The bytes of bodies that have moved.
    var progressSoFar: CallErrors.Timeout.Progress {
        self.locked { snapshot in
            .init(
                length: self.countOfBytesExpectedToSend,
                sent: self.bytesSent(snapshot),
                received: snapshot.bytesReceived,
                expected: snapshot.bytesExpectedToReceive
            )
        }
    }

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
        switch self.finish(.failure(CallErrors.released), nil, takingHandler: false) {
        case .none, .unheard, .takenHandler: break
        case .handler: (self.callbackQueue ?? self.engine.loop.callbackQueue).run { self.callBack() }
        case .party(let party, _): party.ended(self.takeResult()) { $0.resume() }
        }
    }

    /// Sets a task in this state running, with all bytes of its body sent. False, without effect, if it is in another
    /// state or its progress is observed.
    func startSentWhole(from state: State) -> Bool {
        self.word.compareExchange(
            expected: TaskWord(state),
            desired: TaskWord(.running, isSentWhole: true),
            ordering: .acquiringAndReleasing
        ).exchanged
    }

    /// Completes the task of a call that was sent at once, and has no flight, with its answer. Socket thread only.
    ///
    /// - Parameter callsBackHere: Whether the client's handlers run on the socket thread.
    @inline(__always)
    static func complete(
        _ task: consuming SocketTask,
        _ response: consuming SocketResponse,
        facts: CallFacts,
        callsBackHere: Bool,
        in turn: inout Turn
    ) {
        var task = task
        guard Self.isUnshared(&task), task.hasHandlerAlone else {
            return task.complete(response, facts, in: &turn)
        }
        // No other code can access the task, so its record need not be kept.
        guard callsBackHere, case .handler(let handler) = task.snapshot.takeCompletion() else {
            task.snapshot.response = consume response
            task.word.store(task.word.load(ordering: .relaxed).with(.completed), ordering: .releasing)
            return turn.callBack(.work(consume task))
        }
        turn.run(AnsweredCall(task, handler: handler, consume response))
    }

    /// Whether only the caller has a strong or weak reference to the task. Unowned references do not count: code that
    /// uses one must know that the task is retained elsewhere. Not exact: a thread that loads and then clears the last
    /// weak reference between the two checks is not noticed.
    private static func isUnshared(_ task: inout SocketTask) -> Bool {
        isKnownUniquelyReferenced(&task) && _getWeakRetainCount(task) <= 1
    }

    /// Whether such a task requires nothing but a call of its handler, on the client's callback queue.
    private var hasHandlerAlone: Bool {
        guard self.callbackQueue == nil, self.snapshot.rare == nil, case .handler = self.snapshot.completion else {
            return false
        }
        return true
    }

    /// The priority of a running task, and the span context of its caller; nil if it is not running, as when it is
    /// being cancelled or complete.
    func begin() -> (FramePriority, ServiceContext?)? {
        self.locked { self.state == .running ? ($0.priority, $0.rare?.context) : nil }
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
        case takenHandler(CallHandler)
        case party(any CallParty, showsProgress: Bool)
    }

    /// Completes the task, and notifies its receiver, where handlers run. Socket thread only.
    ///
    /// - Parameter flight: The call's; nil if it was never in the table.
    func complete(_ outcome: CallOutcome, _ flight: CallFlight?, in turn: inout Turn) {
        self.deliver(self.finish(outcome, flight, takingHandler: self.callsBackHere), outcome, in: &turn)
    }

    /// Completes the task of a call without a flight, which was sent at once, with its answer.
    @inline(never)
    private func complete(_ response: SocketResponse, _ facts: CallFacts, in turn: inout Turn) {
        let now = turn.now
        let ending = self.finish(takingHandler: self.callsBackHere) { snapshot in
            let length = self.countOfBytesExpectedToSend
            var record = CallRecord(facts, bytesSent: self.bytesSent(snapshot) == length ? length : 0)
            record.isAnswered(response.body.readableBytes, at: now)
            self.part.record = record
            self.part.isAtOriginOfAnswer = true
            snapshot.isAnswered(response)
        }
        self.deliver(ending, .success(response), in: &turn)
    }

    /// Whether the handler runs on the socket thread.
    private var callsBackHere: Bool { self.engine.traits.callsBackHere && self.callbackQueue == nil }

    private func deliver(_ ending: Ending, _ outcome: @autoclosure () -> CallOutcome, in turn: inout Turn) {
        switch ending {
        case .none, .unheard(showsProgress: false):
            break
        case .takenHandler(let handler):
            turn.run(CompletedCall(task: self, handler: handler, outcome: outcome()))
        case .handler:
            turn.callBack(.work(self), on: self.callbackQueue)
        case .unheard(showsProgress: true):
            self.showProgress(in: &turn)
        case .party(let party, let showsProgress):
            if showsProgress { self.showProgress(in: &turn) }
            party.ended(self.takeResult()) { turn.resume($0) }
        }
    }

    private func finish(_ outcome: CallOutcome, _ flight: CallFlight?, takingHandler: Bool) -> Ending {
        self.finish(takingHandler: takingHandler) { snapshot in
            var isAtOriginOfAnswer = false
            switch outcome {
            case .success(let response):
                // A stream takes its answer, and an interceptor's may be another server's.
                isAtOriginOfAnswer = !self.isStream && flight?.state.origin === response.origin
                snapshot.isAnswered(response)
            case .failure(let error):
                snapshot.changeRare { $0.error = error }
            }
            guard let flight else { return }
            self.part.record = flight.state.record
            self.part.isAtOriginOfAnswer = isAtOriginOfAnswer
            if !isAtOriginOfAnswer, let origin = flight.state.origin { snapshot.changeRare { $0.origin = origin } }
        }
    }

    /// Completes the task, unless it is complete.
    ///
    /// - Parameters:
    ///   - takingHandler: Whether the caller of this function also calls the handler.
    ///   - store: Stores the result and the record.
    @inline(__always)
    private func finish(takingHandler: Bool, _ store: (inout Snapshot) -> Void) -> Ending {
        self.locked { snapshot in
            guard self.state != .completed else { return .none }
            store(&snapshot)
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
        case .party(let party): return .party(party, showsProgress: showsProgress)
        }
    }

    /// Records the number of bytes of the body that have been sent.
    func sent(_ length: Int, in turn: inout Turn) {
        self.moves(in: &turn) { $0.bytesSent = length }
    }

    /// Records that `bytesReceived` of `expected` bytes of the answer's body have arrived; nil while their number is
    /// not known.
    func progressed(bytesReceived: Int, of expected: Int?, in turn: inout Turn) {
        self.moves(in: &turn) { snapshot in
            snapshot.bytesReceived = bytesReceived
            snapshot.bytesExpectedToReceive = expected
        }
    }

    /// Resets the progress for another attempt.
    func progressStartsOver(in turn: inout Turn) {
        self.moves(in: &turn) { snapshot in
            self.word.update { word in
                var word = word
                word.isSentWhole = false
                return word
            }
            snapshot.bytesSent = 0
            snapshot.bytesReceived = 0
            snapshot.bytesExpectedToReceive = nil
        }
    }

    /// Changes the progress, and shows it if it is observed.
    @inline(__always)
    private func moves(in turn: inout Turn, _ change: (inout Snapshot) -> Void) {
        let mustShow = self.locked { snapshot in
            change(&snapshot)
            return snapshot.progress?.mustSchedule() ?? false
        }
        if mustShow { self.showProgress(in: &turn) }
    }

    /// Schedules ``updateProgress()`` on the callback queue.
    private func showProgress(in turn: inout Turn) {
        turn.callBack(.closure { self.updateProgress() }, on: self.callbackQueue)
    }

    /// Updates the `Progress`, on the callback queue.
    private func updateProgress() {
        let (progress, units) = self.locked { ($0.progress?.begin(), self.units($0)) }
        progress?.update(to: units)
    }
}

extension SocketTask: SubmittedWork {
    package func performOnSocketThread(_ operation: UInt8, in turn: inout Turn) {
        guard let operation = Operation(rawValue: operation) else {
            return assertionFailure("unknown operation \(operation)")
        }
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
            return (completion, snapshot.response, snapshot.error, snapshot.progress != nil)
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
struct CompletedCall: TurnHandler {
    let task: SocketTask?
    let handler: CallHandler
    let outcome: CallOutcome

    static func run(at pointer: UnsafeMutableRawPointer) {
        let call = pointer.takeHandler(Self.self)
        call.handler(call.outcome)
        withExtendedLifetime(call.task) {}
    }
}

/// The handler of a task's answered call, which runs after the units of this read have been processed.
private struct AnsweredCall: TurnHandler {
    struct Answer {
        let handler: CallHandler
        let response: SocketResponse

        consuming func run() {
            self.handler(.success(self.response))
        }
    }

    /// Released just before the handler runs, which usually makes another call that reuses the memory.
    private var task: SocketTask
    private var answer: Answer

    init(_ task: SocketTask, handler: @escaping CallHandler, _ response: consuming SocketResponse) {
        self.task = task
        self.answer = Answer(handler: handler, response: response)
    }

    static func run(at pointer: UnsafeMutableRawPointer) {
        // Moved out separately: a copy would count references.
        let call = pointer.assumingMemoryBound(to: Self.self)
        guard let task = call.pointer(to: \.task), let answer = call.pointer(to: \.answer) else {
            preconditionFailure("stored properties have addresses")
        }
        task.deinitialize(count: 1)
        answer.move().run()
    }
}
