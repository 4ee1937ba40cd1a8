// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Tracing

/// The table of a client's calls.
typealias ClientCalls = CallTable<CallEnd>
typealias CallAttempt = ClientCalls.Attempt

/// The handler of a call's result.
typealias CallHandler = @Sendable (CallOutcome) -> Void

/// A call in the table: the receiver of its result, notified once, by the code that removes the call from the table.
///
/// Noncopyable, since an ordinary enumeration would be copied on its way, which counts references. It has 17 bytes, and
/// so travels in registers; the request of a call without an object is beside it in the table.
enum CallEnd: ~Copyable {
    /// A caller on the client's executor; nil means that the call must be made by an ``AwaitedCall``.
    typealias Waiter = UnsafeContinuation<CallOutcome?, Never>

    case nobody
    case task(SocketTask)
    case handler(CallHandler)
    case waiter(Waiter)
    /// A caller on another executor.
    case awaited(AwaitedCall)
    /// The flight, which has the receiver.
    case flight(CallFlight)

    /// The object of a call, if it has one.
    enum Object {
        case task(SocketTask)
        case awaited(AwaitedCall)
        case flight(CallFlight)

        /// The length of the request's payload in bytes.
        var length: Int {
            switch self {
            case .task(let task): task.countOfBytesExpectedToSend
            case .awaited(let call): call.request.body.readableBytes
            case .flight(let flight): flight.state.payloadLength ?? flight.request.body.readableBytes
            }
        }

        /// Records that `payloadBytes` of the request's payload have been sent. Returns the flight of the call if those
        /// are all.
        func sent(payloadBytes: Int, in turn: inout Turn) -> CallFlight? {
            switch self {
            case .task(let task): task.sent(payloadBytes, in: &turn)
            case .awaited(let call): call.sent(payloadBytes)
            case .flight(let flight): if flight.sent(payloadBytes: payloadBytes, in: &turn) { return flight }
            }
            return nil
        }

        /// Records that `received` of `expected` bytes of the answer's body have arrived; nil while their number is not
        /// known.
        func isReceiving(_ received: Int, of expected: Int?, in turn: inout Turn) {
            switch self {
            case .task(let task): task.progressed(bytesReceived: received, of: expected, in: &turn)
            case .awaited(let call): call.progressed(bytesReceived: received, of: expected)
            case .flight(let flight): flight.isReceiving(received, of: expected, in: &turn)
            }
        }
    }

    // One case a line: the compiler does not support several patterns over a noncopyable value.

    var object: Object? {
        switch self {
        case .task(let task): .task(task)
        case .awaited(let call): .awaited(call)
        case .flight(let flight): .flight(flight)
        case .nobody: nil
        case .handler: nil
        case .waiter: nil
        }
    }

    /// The task of a call that has no flight, or the call that its caller awaits on another executor.
    fileprivate var handles: (SocketTask?, AwaitedCall?) {
        switch self.object {
        case .task(let task): (task, nil)
        case .awaited(let call): (nil, call)
        case .flight, nil: (nil, nil)
        }
    }

    /// The request that is sent for the call, unless it is beside the call in the table.
    var request: SocketRequest? {
        switch self.object {
        case .task(let task): task.originalRequest
        case .awaited(let call): call.request
        case .flight(let flight): flight.request
        case nil: nil
        }
    }
}

extension ClientCalls {
    /// The type of the request that an answer with this serial is for; nil if no call waits for it.
    mutating func requestType(_ serial: UInt32, on id: ConnectionID) -> UInt32? {
        if let kept = self.kept(serial: serial, on: id) { return kept.pointee.type }
        return self.withCall(serial: serial, on: id) { call, _ in call.request?.type } ?? nil
    }

    /// The type of the request that an answer with this serial is for, if its call has no flight, which is reported.
    mutating func typeWithoutFlight(_ serial: UInt32, on id: ConnectionID) -> UInt32? {
        let hasFlight = self.withCall(serial: serial, on: id) { call, _ in call.existingFlight != nil }
        return hasFlight == false ? self.requestType(serial, on: id) : nil
    }
}

extension CallEnd: TableCall {
    @inline(__always)
    var keeps: Bool {
        switch self {
        case .nobody: true
        case .handler: true
        case .waiter: true
        case .task: false
        case .awaited: false
        case .flight: false
        }
    }

    var existingFlight: CallFlight? {
        if case .flight(let flight) = self.object { flight } else { nil }
    }

    @inline(never)
    mutating func makeFlight(
        _ facts: CallFacts,
        kept: UnsafeMutablePointer<SocketRequest>,
        key: DispatchKey,
        deadline: NIODeadline
    ) -> CallFlight {
        let request = self.request ?? kept.move()
        var end = CallEnd.nobody
        swap(&end, &self)
        let flight = CallFlight(end, request, facts: facts)
        flight.enters(key, until: deadline)
        self = .flight(flight)
        return flight
    }
}

/// The part of a call that most calls never need: made when anything but its answer happens to the call, which hands
/// everything over to it, the receiver of the result included.
final class CallFlight: @unchecked Sendable {
    // Proof of Sendable: accessed only on the socket thread.

    /// The state of a call, for those that read it.
    struct State {
        /// The key of the call while it is in the table.
        var key: DispatchKey?
        var deadline = NIODeadline.distantFuture
        var record = CallRecord()
        /// The server to which the request was sent last.
        var origin: SocketResponse.Origin?
        /// The bytes of bodies that have moved in the current attempt.
        var progress: CallErrors.Timeout.Progress
        /// The request as changed by the interceptors, if there are any.
        var request: SocketRequest?
        /// The length of the current attempt's payload, in bytes, if it is not only the request's body.
        var payloadLength: Int?
        /// The result of compressing the request's body on another thread; nil if that was not done.
        var deflated: RequestSealer.Deflated?
        /// The number of retries since the innermost interceptor requested the call.
        var retries = 0
        /// The number of times that the call was sent again because a server was shutting down, since the innermost
        /// interceptor requested it.
        var resends = 0
        /// The error of the previous attempt.
        var lastFailure: SocketError?
        /// Whether the server may have run the request in an earlier attempt, or at an earlier request of an
        /// interceptor.
        var mayHaveRun = false
        var span: (any Span)?
    }

    /// The number by which the call can be cancelled; 0 for none.
    let identifier: Int
    let originalRequest: SocketRequest
    /// The task of the call, if it has one.
    let task: SocketTask?
    let awaited: AwaitedCall?
    private var end: CallEnd
    private var current: State

    /// Makes the flight of a call that is not in the table yet.
    init(_ end: consuming CallEnd, _ request: SocketRequest, identifier: Int = 0) {
        (self.task, self.awaited) = end.handles
        self.identifier = identifier
        self.end = end
        self.originalRequest = request
        self.current = State(progress: .init(length: request.body.readableBytes, sent: 0, received: 0))
    }

    /// Makes the flight of a call that was sent at once.
    fileprivate convenience init(_ end: consuming CallEnd, _ request: SocketRequest, facts: CallFacts) {
        self.init(end, request, identifier: facts.identifier)
        let length = request.body.readableBytes
        let progress = self.task?.progressSoFar ?? self.awaited?.progress
        self.current.progress = progress ?? .init(length: length, sent: length, received: 0)
        let isSentWhole = self.current.progress.sent == length
        self.current.record = CallRecord(facts, bytesSent: isSentWhole ? length : 0)
    }

    var state: State { _read { yield self.current } }

    var isStream: Bool { self.task?.isStream ?? false }

    /// The request that is sent for the call: its own, or the one that interceptors made of it.
    var request: SocketRequest { self.current.request ?? self.originalRequest }

    var priority: FramePriority { self.task?.priority ?? self.originalRequest.options.priority }

    // MARK: Life

    /// Records that the client has accepted the call.
    func isAccepted(at time: NIODeadline, _ span: (any Span)?) {
        self.current.record.queued = .init(time)
        self.current.span = span
    }

    /// Records that the call is in the table.
    func enters(_ key: DispatchKey, until deadline: NIODeadline) {
        self.current.key = key
        self.current.deadline = deadline
        self.task?.enters(key)
        self.awaited?.enters(key)
    }

    /// Records that an interceptor requests an answer to `request`.
    func isAsked(_ request: SocketRequest) {
        self.current.request = request
        self.current.deflated = nil
        self.current.retries = 0
        self.current.resends = 0
    }

    /// Records that the call is complete. Returns whether it is the first time, and the client had accepted the call.
    func completes(at time: NIODeadline) -> Bool {
        self.current.key = nil
        guard self.current.record.queued.hasCome, !self.current.record.completed.hasCome else { return false }
        self.current.record.completed = .init(time)
        return true
    }

    /// Notifies the receiver of the result, where handlers run. Does nothing if it was notified before.
    func deliver(_ outcome: CallOutcome, in turn: inout Turn) {
        var end = CallEnd.nobody
        swap(&end, &self.end)
        switch consume end {
        case .nobody: break
        case .handler(let handler): turn.run(CompletedCall(task: nil, handler: handler, outcome: outcome))
        case .waiter(let waiter): turn.run(CompletedWaiter(continuation: waiter, outcome: outcome))
        case .task(let task): task.complete(outcome, self, in: &turn)
        case .awaited(let call): turn.resume(call.finish(outcome))
        case .flight: break
        }
    }

    // MARK: Attempts

    func attemptBegins() {
        self.current.record.attempts += 1
        self.current.record.firstByte = .init()
    }

    /// Records that the attempt does not count, since nothing of it was sent.
    func attemptIsWithdrawn() {
        self.current.record.attempts = max(1, self.current.record.attempts) - 1
    }

    /// Records the result of compressing the request's body.
    func isDeflated(_ deflated: RequestSealer.Deflated) { self.current.deflated = deflated }

    /// Records the payload of the attempt.
    func isSealed(_ sealed: Envelope.Sealed) {
        self.current.payloadLength = sealed.type == self.request.type ? nil : sealed.payload.readableBytes
    }

    /// Records that the call will be sent again after `error`: by its retry policy, or, if it `isResent`, because its
    /// server is shutting down.
    func isRepeated(after error: SocketError, isResent: Bool, in turn: inout Turn) {
        if isResent {
            self.current.resends += 1
        } else {
            self.current.retries += 1
            self.mayHaveRun(unless: error.notExecuted)
        }
        self.current.lastFailure = error
        self.current.progress = .init(length: self.current.progress.length, sent: 0, received: 0)
        self.task?.progressStartsOver(in: &turn)
    }

    /// Records that the server may have run the request.
    func mayHaveRun(unless isExcluded: Bool = false) {
        if !isExcluded { self.current.mayHaveRun = true }
    }

    /// Corrects the error's delivery: a request that was not sent in the last attempt may have run in an earlier one.
    func withActualDelivery(_ error: SocketError) -> SocketError {
        guard self.current.mayHaveRun, error.notExecuted else { return error }
        var error = error
        error.delivery = .sentUnknown
        return error
    }

    /// Restores what was known before the answer that is being read.
    func mayHaveRun(asBefore mayHaveRun: Bool) { self.current.mayHaveRun = mayHaveRun }

    // MARK: Sizes and times

    /// Records that the request's first bytes are being sent.
    func sendingBegan(at time: NIODeadline) { self.current.record.sent = .init(time) }

    /// Records that `payloadBytes` of the payload have been sent. Returns whether those are all.
    fileprivate func sent(payloadBytes: Int, in turn: inout Turn) -> Bool {
        let length = self.request.body.readableBytes
        let isWhole = payloadBytes == self.current.payloadLength ?? length
        // If the payload contains more than the body, the body's last byte counts as sent only with the whole payload.
        self.current.progress.sent = isWhole ? length : min(payloadBytes, max(0, length - 1))
        self.task?.sent(self.current.progress.sent, in: &turn)
        if isWhole { self.addSent(length) }
        return isWhole
    }

    /// Records that bytes of bodies were sent.
    func addSent(_ length: Int) { self.current.record.bytesSent += length }

    fileprivate func isReceiving(_ received: Int, of expected: Int?, in turn: inout Turn) {
        self.answerBegins(at: turn.now)
        self.current.progress.received = received
        self.current.progress.expected = expected
        self.task?.progressed(bytesReceived: received, of: expected, in: &turn)
    }

    func answerBegins(at time: NIODeadline) { self.current.record.firstByte.comesFirst(at: time) }

    /// Records an answer of this length.
    func isAnswered(_ length: Int, from origin: SocketResponse.Origin, at time: NIODeadline) {
        self.answerBegins(at: time)
        self.current.record.bytesReceived += length
        self.current.origin = origin
    }

    /// Records where the attempt was sent.
    func wasSent(to origin: SocketResponse.Origin) { self.current.origin = origin }
}

/// The handler of an answered call without a task, which runs after the units of this read have been processed.
struct AnsweredHandler: TurnHandler {
    private struct Answer {
        let handler: CallHandler
        let response: SocketResponse

        consuming func run() {
            self.handler(.success(self.response))
        }
    }

    private let answer: Answer

    init(_ handler: consuming @escaping CallHandler, _ response: consuming SocketResponse) {
        self.answer = Answer(handler: handler, response: response)
    }

    static func run(at pointer: UnsafeMutableRawPointer) {
        pointer.assumingMemoryBound(to: Answer.self).move().run()
    }
}

/// The caller of an answered call on the client's executor, which continues where handlers run.
struct AnsweredWaiter: TurnHandler {
    let continuation: CallEnd.Waiter
    let response: SocketResponse

    static func run(at pointer: UnsafeMutableRawPointer) {
        pointer.takeHandler(Self.self).run()
    }

    private consuming func run() {
        self.continuation.resume(returning: .success(self.response))
    }
}

/// The caller of a completed call on the client's executor.
struct CompletedWaiter: TurnHandler {
    let continuation: CallEnd.Waiter
    let outcome: CallOutcome

    static func run(at pointer: UnsafeMutableRawPointer) {
        let completed = pointer.takeHandler(Self.self)
        completed.continuation.resume(returning: completed.outcome)
    }
}

extension CallAttempt {
    /// The error of a call that ends in this attempt, of which the server has answered nothing.
    func unanswered(_ error: SocketError) -> SocketError {
        var error = error
        error.serial = self.serial
        error.delivery = self.phase == .sent ? .sentUnknown : .notSent
        return error
    }
}
