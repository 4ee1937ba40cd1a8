import DequeModule
import Dispatch
import Foundation
import HHSocket
import HHSocketHello
import Logging
import Metrics
import NIOConcurrencyHelpers
import NIOCore
import Tracing

/// A client's calls and pushes on the socket thread: performs what ``DispatchTable`` decides.
///
/// What becomes of a call is in `ClientCore+Calls`, what interceptors do with it in `ClientCore+Interception`, what the server
/// says in `ClientCore+Frames`, what follows when it is about to end in `ClientCore+GoAway`, and what the user is told when
/// something fails in `ClientCore+Errors`.
final class ClientCore: FrameConsumer, @unchecked Sendable {
    // Proof of Sendable: the constants never change or are locked; every other property is touched
    // on the socket thread alone.
    let socket: any FrameCarrier
    let streams = EventStreams()
    let configuration: SocketClient.Configuration
    let format: WireFormat
    let tracer: (any Tracer)?
    /// Whether a task is to remember in which context it was resumed.
    let needsContext: Bool
    /// Whether anybody wants to know what becomes of single calls.
    let isObserved: Bool
    /// Whether a call goes straight to the table, because no interceptor stands around it.
    let isDirect: Bool
    /// Whether a request that has nothing of its own can leave by ``startAtOnce(_:)``.
    let isPlain: Bool
    /// Bodies of more bytes do not leave by ``startAtOnce(_:)``: they leave in slices, or may be compressed.
    let largestPlainBody: Int
    /// The bits of a type that are flags; 0 where the wire format has no room for them.
    let flagMask: UInt32
    /// Whether handlers run on the socket thread.
    let callsBackHere: Bool
    /// The custom fields of requests that have none of their own.
    let customFields: Result<[UInt8]?, SocketError>
    let locks = TaskLocks()
    /// Where large bodies are compressed and decompressed, one after the other.
    let compressionQueue = DispatchQueue(label: "HHSocket compression")
    private let timeout: TimeAmount
    private let shared = NIOLockedValueBox(Shared())

    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    var table: DispatchTable<SocketTask>
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    var retryBucket: RetryBucket?
    /// The calls that `dispatch` has made and that are not complete, by their tasks' identifiers.
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    var dispatched: [Int: DispatchKey] = [:]
    var generator = SystemRandomNumberGenerator()
    private var pushes = PushRouter()
    /// Pushes that are delivered after one that is being decompressed, which is the first of them.
    var pushLine: Deque<WaitingPush> = []
    var pushLineBytes = 0
    /// What the delegate's queue has not looked at yet.
    private let delegateBacklog = CallbackBacklog()
    /// How the latest calls to the present server ended; nil where nobody wants to know.
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var errorRate: ErrorRateWindow?
    private var log: CallLog?
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var metrics: CallMetrics?
    /// When the timer for the table's alarms fires.
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private(set) var timerFires = NIODeadline.distantFuture
    private(set) var isInvalidated = false
    /// Whether no more calls are taken.
    private(set) var isFinishing = false
    /// Called once the last call has completed.
    private var finished: (() -> Void)?
    /// Whether attempts to connect begin later unless a call asks for them.
    var isPutOff = false
    /// The connection whose go-away has been read, the last one.
    var goneAway = ConnectionID(number: 0)
    /// What calls leave by, and where it leads, while it is ready. Its answers share that, where their headers have no fields
    /// of the server's.
    private(set) var connection = ConnectionID(number: 0)
    private(set) var origin = SocketResponse.Origin(endpoint: Endpoint(host: "", port: 0))
    /// Where the connections lead that were left for another and finish what is in flight.
    private(set) var leftOrigins: [ConnectionID: SocketResponse.Origin] = [:]

    /// What other threads see.
    private struct Shared {
        weak var client: SocketClient?
        weak var delegate: (any SocketClientDelegate)?
        var statistics = ClientStatistics()
    }

    /// - Parameter socket: What carries the frames. It is to tell this object what happens.
    init(configuration: SocketClient.Configuration, socket: any FrameCarrier) {
        self.socket = socket
        self.configuration = configuration
        self.format = socket.format
        let tracer = configuration.tracer ?? InstrumentationSystem.tracer
        self.tracer = tracer is NoOpTracer ? nil : tracer
        self.needsContext = self.tracer != nil || !configuration.interceptors.isEmpty
        self.isDirect = configuration.interceptors.isEmpty
        self.callsBackHere = if case .socketThread = socket.callbackQueue.target { true } else { false }
        self.customFields = Result { () throws(SocketError) in try socket.customFields([:]) }
        let hasNoFields = if case .success(nil) = self.customFields { true } else { false }
        self.isPlain =
            configuration.interceptors.isEmpty && self.tracer == nil && configuration.firstResponseTimeout == nil
            && hasNoFields
        let compressed = configuration.compression.map { max($0.minimumLength, 0) } ?? .max
        self.largestPlainBody = min(Frame.unslicedLength, compressed - 1)
        self.flagMask = self.format.supportsHello ? FrameType.allFlags : 0
        self.timeout = TimeAmount(clamping: configuration.timeout)
        self.table = DispatchTable(
            serialRange: self.format.layout.requestSerials,
            maximumInFlight: configuration.maximumInFlight,
            maximumWaiting: configuration.maximumWaiting,
            maximumWaitingBytes: configuration.maximumWaitingBytes,
            maximumTombstones: configuration.maximumTombstones
        )
        self.retryBucket = configuration.retryBudget.map { RetryBucket($0) }
        self.errorRate = configuration.errorRatePolicy.map { ErrorRateWindow($0) }
        self.log = configuration.socket.logger.map { CallLog($0) }
        self.metrics = CallMetrics(factory: configuration.socket.metricsFactory ?? MetricsSystem.factory)
        self.isObserved = self.log != nil || self.metrics != nil || self.tracer != nil
    }

    // MARK: Any thread

    static var released: SocketError {
        SocketError(.cancelled, message: "the client was released, or invalidated, before the call completed")
    }

    static var invalidated: SocketError {
        SocketError(
            .cancelled,
            message: "the client takes no more calls after finishTasksAndInvalidate(); make another client"
        )
    }

    func submit(_ submission: Submission) -> Bool { self.socket.submit(submission) }

    func setClient(_ client: SocketClient) {
        self.shared.withLockedValue { $0.client = client }
    }

    var delegate: (any SocketClientDelegate)? {
        get { self.shared.withLockedValue { $0.delegate } }
        set { self.shared.withLockedValue { $0.delegate = newValue } }
    }

    var statistics: ClientStatistics { self.shared.withLockedValue { $0.statistics } }

    /// Has a task's handler run where handlers run, when the socket thread has ended.
    func callBackAfterInvalidation(_ task: SocketTask) {
        (task.callbackQueue ?? self.socket.callbackQueue).run { task.callBack() }
    }

    /// What a complete task took.
    func metrics(of task: SocketTask) -> SocketTaskMetrics? {
        let flight = task.flight
        guard let queued = flight.queued.date, let completed = flight.completed.date else { return nil }
        // One moment by both clocks, and a recent one: they part when the device sleeps, or its clock is set.
        let (today, now) = (Date(), NIODeadline.now())
        func date(_ moment: NIODeadline) -> Date {
            today.addingTimeInterval(Double((moment - now).nanoseconds) / 1e9)
        }
        return SocketTaskMetrics(
            queued: date(queued),
            sent: flight.sent.date.map { date($0) },
            firstByte: flight.firstByte.date.map { date($0) },
            completed: date(completed),
            duration: Duration(completed - queued),
            server: flight.origin?.endpoint,
            attempts: Int(flight.attempts),
            bytesSent: flight.bytesSent,
            bytesReceived: flight.bytesReceived
        )
    }

    // MARK: Observers

    func count(_ counter: WritableKeyPath<ClientStatistics, Int>, by amount: Int = 1) {
        self.shared.withLockedValue { $0.statistics[keyPath: counter] += amount }
        self.metrics?.counted(counter, by: amount)
    }

    /// Begins to observe a call that the client has taken up.
    func observe(_ task: SocketTask) {
        guard let tracer = self.tracer else { return }
        task.flight.span = CallSpan.start(task.originalRequest, in: task.flight.context ?? .topLevel, tracer)
    }

    func observeRetry(_ task: SocketTask, after error: SocketError, in delay: Duration) {
        self.metrics?.retried(after: error.code)
        self.log?.retries(task.originalRequest.type, after: error, in: delay)
        if let span = task.flight.span { CallSpan.retried(span, after: error) }
    }

    func observeResend(_ task: SocketTask, after error: SocketError) {
        self.count(\.resentCalls)
        self.log?.isSentAgain(task.originalRequest.type, after: error)
        if let span = task.flight.span { CallSpan.isSentAgain(span, after: error) }
    }

    /// A call has completed that the client had taken up.
    func observeCompletion(_ task: SocketTask, _ result: Result<SocketResponse, SocketError>) {
        let type = task.originalRequest.type
        if self.metrics != nil, let queued = task.flight.queued.date,
            let completed = task.flight.completed.date
        {
            let outcome: SocketError.Code? = if case .failure(let error) = result { error.code } else { nil }
            self.metrics?.completed(type, outcome, after: completed - queued)
        }
        self.log?.completed(type, task.flight, result)
        if let span = task.flight.span {
            CallSpan.end(span, task.flight, result)
            task.flight.span = nil
        }
    }

    func turnEnded() {
        if let finished = self.finished, self.table.count == 0 {
            self.finished = nil
            finished()
        }
        guard self.metrics != nil else { return }
        self.metrics?.measure(inFlight: self.table.inFlightCount, waiting: self.table.waitingCount)
    }

    /// What the end of an attempt tells of the server; nil: it was answered as it should be.
    func judge(_ error: SocketError?, on id: ConnectionID) {
        // What a connection that was left still answers tells nothing of its successor.
        guard id == self.connection, self.table.link == .ready, let isWrong = ErrorRateWindow.judge(error),
            !isWrong || self.socket.isNetworkReachable,
            let verdict = self.errorRate?.ended(isWrong: isWrong, now: self.socket.now)
        else { return }
        self.socket.serverFails(self.origin.endpoint, wrong: verdict.wrong, calls: verdict.calls)
    }

    /// Takes no more calls, and calls `finished` once those of before have completed; on the socket thread.
    func finishTasks(_ finished: @escaping () -> Void) {
        guard !self.isFinishing, !self.isInvalidated else { return }
        self.isFinishing = true
        self.table.takesCalls = false
        self.finished = finished
    }

    // MARK: Time

    /// One timer for all calls: set to the earliest alarm, and never moved when that call completes in time.
    func armTimer() {
        guard let alarm = self.table.earliestAlarm, alarm < self.timerFires else { return }
        self.timerFires = alarm
        self.socket.setConsumerTimer(alarm)
    }

    func timerFired() {
        // What is due is seen to below: for an alarm of this moment no timer need be set.
        self.timerFires = .distantPast
        while let alarm = self.table.nextAlarm(now: self.socket.now) {
            switch alarm {
            case .expired(let attempt): self.expired(attempt)
            case .noFirstResponse(let attempt): self.answerDidNotBegin(attempt)
            case .retry(let key, let task): self.attempt(task, key)
            }
        }
        self.table.dropStaleAlarms()
        self.timerFires = .distantFuture
        self.armTimer()
    }

    // MARK: Pushes

    /// A mailbox into which the pushes of `type` come, or those of every type, until it is cancelled. Any thread.
    func subscribe(to type: UInt32?, _ policy: PushBufferingPolicy) -> PushMailbox {
        let mailbox = PushMailbox(policy) { [weak self] mailbox in
            self?.socket.submit(.closure { [weak self] in self?.mailboxChanged(mailbox, type) })
        }
        let isAlive = self.submit(
            .closure {
                if self.isInvalidated {
                    mailbox.finish()
                } else {
                    self.pushes.add(mailbox, type)
                }
            }
        )
        if !isAlive { mailbox.finish() }
        return mailbox
    }

    /// Any thread.
    func pushHandlerFailed(_ type: UInt32, _ error: any Error) {
        self.pushFailed("a handler of pushes failed", type, error, \.failedPushHandlers)
    }

    func pushIsMalformed(_ type: UInt32, _ error: any Error) {
        self.pushFailed("a push is no message of its type", type, error, \.malformedPushes)
    }

    /// A push came that cannot be opened; on the socket thread.
    func receivedPush(_ type: UInt32, thatCannotBeRead reason: EnvelopeError, _ endpoint: Endpoint) {
        self.count(\.pushes)
        self.count(\.malformedPushes)
        self.configuration.socket.logger?.warning(
            "a push cannot be read",
            metadata: ["type": "\(type)", "server": "\(endpoint)", "error": "\(reason)"]
        )
    }

    private func pushFailed(
        _ complaint: Logger.Message,
        _ type: UInt32,
        _ error: any Error,
        _ counter: WritableKeyPath<ClientStatistics, Int> & Sendable
    ) {
        _ = self.submit(
            .closure {
                self.count(counter)
                // Its kind alone: what an app's error says may be what the push said.
                self.configuration.socket.logger?.warning(
                    complaint,
                    metadata: ["type": "\(type)", "error": "\(Swift.type(of: error))"]
                )
            }
        )
    }

    private func mailboxChanged(_ mailbox: PushMailbox, _ type: UInt32?) {
        if mailbox.isOver { self.pushes.remove(mailbox, type) }
        self.updateReading()
    }

    /// Asks all who may hold reading anew: since this was submitted somebody may have fallen behind again.
    func updateReading() {
        self.socket.setReading(
            isSuspended: self.pushes.holdsReading || self.delegateBacklog.isFull || self.pushLineIsFull
        )
    }

    /// Hands a push that nobody subscribed to over to the delegate.
    private func tellDelegate(of push: SocketPush) {
        let (delegate, client) = self.shared.withLockedValue { ($0.delegate, $0.client) }
        guard let delegate, let client else { return }
        let length = push.body.readableBytes
        if self.delegateBacklog.add(bytes: length) { self.updateReading() }
        self.socket.callBack(
            .closure {
                delegate.client(client, didReceive: push)
                guard self.delegateBacklog.remove(bytes: length) else { return }
                _ = self.submit(.closure { self.updateReading() })
            }
        )
    }

    func receivedPush(_ frame: Frame, _ metadata: [String: String], _ endpoint: Endpoint) {
        guard self.pushLine.isEmpty else {
            return self.standInLine(
                WaitingPush(frame: frame, metadata: metadata, endpoint: endpoint, isCompressed: false)
            )
        }
        self.deliverPush(frame, metadata, endpoint)
    }

    func deliverPush(_ frame: Frame, _ metadata: [String: String], _ endpoint: Endpoint) {
        self.count(\.pushes)
        let push = SocketPush(
            type: frame.type,
            status: frame.status,
            body: frame.payload,
            header: self.format.header(of: frame),
            metadata: metadata,
            endpoint: endpoint
        )
        let routed = self.pushes.route(push)
        if routed.dropped > 0 { self.count(\.droppedPushes, by: routed.dropped) }
        if routed.holdsReading { self.updateReading() }
        if !routed.isClaimed { self.tellDelegate(of: push) }
    }

    // MARK: The connection

    func connectionIsBeingMade() {
        self.isPutOff = false
        self.table.linkIsConnecting()
    }

    func connectionIsReady(_ id: ConnectionID, _ endpoint: Endpoint, _ agreement: Agreement?) {
        self.isPutOff = false
        if self.table.link == .ready || self.table.link == .leaving { self.leftOrigins[self.connection] = self.origin }
        self.connection = id
        self.origin = SocketResponse.Origin(endpoint: endpoint, agreement: agreement)
        self.errorRate?.clear()
        self.table.linkIsReady(id)
        self.sendWaiting()
        self.armTimer()
    }

    /// Sends calls that waited for the connection, as long as more of them may be in flight.
    private func sendWaiting() {
        while let next = self.table.nextWaiting() {
            guard let serial = next.serial else { continue }
            self.send(next.call, self.request(of: next.call), next.call.priority, next.key, serial)
        }
    }

    func turnEnds() {
        if self.table.waitingCount > 0, self.table.link == .ready { self.sendWaiting() }
    }

    func connectionDrains(_ id: ConnectionID) {
        self.table.linkDrains(id)
        self.finishDrained()
    }

    /// Lets go of the connections that were left and have nothing in flight any more.
    func finishDrained() {
        guard self.table.hasDrained else { return }
        while let connection = self.table.nextDrained() {
            self.leftOrigins[connection] = nil
            self.socket.finishDraining(connection)
        }
    }

    /// What an answer tells of where it came from.
    func origin(of frame: Frame, _ metadata: [String: String], on id: ConnectionID) -> SocketResponse.Origin {
        guard frame.customFields != nil || !metadata.isEmpty else { return self.origin(of: id) }
        return SocketResponse.Origin(
            header: self.format.header(of: frame),
            endpoint: self.endpoint(of: id),
            metadata: metadata
        )
    }

    func origin(of id: ConnectionID) -> SocketResponse.Origin {
        id == self.connection ? self.origin : self.leftOrigins[id] ?? self.origin
    }

    /// When a call must be complete that starts now.
    func deadline(of request: SocketRequest) -> NIODeadline {
        let end = self.socket.now.advanced(clamping: request.timeout.map { TimeAmount(clamping: $0) } ?? self.timeout)
        // A request that is plain, as most are, has no options to look at.
        guard !request.isPlain, let deadline = request.deadline else { return end }
        return min(end, deadline)
    }

    func endpoint(of id: ConnectionID) -> Endpoint { self.origin(of: id).endpoint }

    func connectionWasLost(_ id: ConnectionID, _ error: SocketError) {
        defer { self.leftOrigins[id] = nil }
        for lost in self.table.linkWasLost(id) {
            var error = error
            error.serial = lost.serial
            error.delivery = lost.phase == .sent ? .sentUnknown : .notSent
            self.ended(lost, error)
        }
        self.armTimer()
    }

    func connectionIsOffline(_ error: SocketError) {
        self.fail(self.table.linkIsOffline(), error)
        self.armTimer()
    }

    private func fail(_ waiting: [DispatchTable<SocketTask>.Attempt], _ error: SocketError) {
        for waiting in waiting {
            var error = error
            error.delivery = .notSent
            self.ended(waiting, error)
        }
    }

    func happened(_ event: SocketEvent) {
        switch event {
        // Nobody reconnects any more, so no call need wait for that.
        case .closed: self.fail(self.table.linkIsOffline(isForGood: true), self.socket.closedByUser)
        case .gaveUp(let error): self.fail(self.table.linkIsOffline(isForGood: true), error)
        default: break
        }
        self.streams.yield(event)
        self.tell { $0.client($1, didReceive: event) }
    }

    func socketWasInvalidated() {
        self.isInvalidated = true
        for key in self.table.keys {
            guard let removed = self.table.remove(key) else { continue }
            var error = Self.released
            error.serial = removed.serial
            if removed.phase == .sent { error.delivery = .sentUnknown }
            self.complete(removed.call, error)
        }
        self.turnEnded()
        self.pushes.finish()
        self.streams.finish()
    }

    private func tell(_ body: @escaping @Sendable (any SocketClientDelegate, SocketClient) -> Void) {
        let (delegate, client) = self.shared.withLockedValue { ($0.delegate, $0.client) }
        guard let delegate, let client else { return }
        self.socket.callBack(.closure { body(delegate, client) })
    }
}
