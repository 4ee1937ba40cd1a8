// SPDX-License-Identifier: Apache-2.0
import Dispatch
import HHSocket
import NIOCore
import Tracing

/// The dispatch table of a client.
typealias CallTable = DispatchTable<SocketTask, LightCall>
typealias CallAttempt = CallTable.Attempt

/// State that every call touches.
struct HotCalls: ~Copyable {
    var table: CallTable
    var retryBucket: RetryBucket?
    /// The time at which the timer for the table's alarms fires.
    var timerFires = NIODeadline.distantFuture
    /// The identifier of the current or latest connection; 0 if there has been none.
    private(set) var connectionID = ConnectionID(number: 0)
    /// The link of the connection while it is ready. Unmanaged, to avoid counting a reference for every call: the
    /// connection keeps it.
    private(set) var link: Unmanaged<Link<FrameLanguage>>?
    /// Called once the last call has completed.
    var finished: (() -> Void)?
    /// The outcomes of the latest calls to the current server; nil without an error-rate policy.
    private var errorRate: ErrorRateWindow?
    private let maximumPayloadLength: Int

    init(_ configuration: ClientConfiguration) {
        self.table = CallTable(
            serialRange: configuration.socket.wireFormat.layout.requestSerials,
            maximumInFlight: configuration.maximumInFlight,
            maximumWaiting: configuration.maximumWaiting,
            maximumWaitingBytes: configuration.maximumWaitingBytes,
            maximumTombstones: configuration.maximumTombstones
        )
        self.retryBucket = configuration.retryBudget.map { RetryBucket($0) }
        self.errorRate = configuration.errorRatePolicy.map { ErrorRateWindow($0) }
        self.maximumPayloadLength = configuration.socket.maximumPayloadLength
    }

    // MARK: Connections

    /// Whether the connection is ready.
    var isReady: Bool { self.table.link == .ready }
    /// Whether there is a connection, ready or going away, that a new one would succeed.
    var hasPredecessor: Bool { self.table.link == .ready || self.table.link == .goingAway }
    /// Whether calls wait for a connection, or for answers of one that goes away.
    var needsConnection: Bool {
        self.table.link == .goingAway && self.table.inFlightCount > 0 || self.table.waitingCount > 0
    }

    /// Sends requests on the link of this connection, which becomes ready; nil for none.
    mutating func adopt(_ connection: ClientConnection?) {
        self.link = connection.map { Unmanaged.passUnretained($0.link) }
        self.connectionID = connection?.id ?? ConnectionID(number: 0)
    }

    /// Sends calls on this connection from now on.
    mutating func linkIsReady(_ id: ConnectionID) {
        self.errorRate?.clear()
        self.table.linkIsReady(id)
    }

    /// Sends nothing more on a connection that is lost.
    mutating func linkIsLost(_ id: ConnectionID) {
        if id == self.connectionID { self.link = nil }
    }

    /// Whether a body of this length can be sent with the next flush.
    @inline(__always)
    func canSendOnFastPath(length: Int) -> Bool {
        guard length <= self.maximumPayloadLength else { return false }
        return self.link?._withUnsafeGuaranteedRef { $0.canSendOnFastPath(length: length) } ?? false
    }

    // MARK: Limits

    /// The error of a call that exceeds a limit; nil if there is no connection for it.
    func error(of refusal: CallTable.Refusal, at endpoint: Endpoint?) -> SocketError? {
        switch refusal {
        case .offline: nil
        case .tooManyInFlight: CallErrors.tooManyInFlight(self.table.inFlightCount, at: endpoint)
        case .queueFull:
            CallErrors.queueFull(self.table.waitingCount, bytes: self.table.waitingBytes, for: endpoint)
        }
    }

    /// Judges the server by the end of an attempt; nil stands for the expected answer.
    @inline(__always)
    mutating func judge(
        _ error: SocketError?,
        on id: ConnectionID,
        now: @autoclosure () -> NIODeadline,
        isReachable: @autoclosure () -> Bool
    ) -> ErrorRateWindow.Verdict? {
        // The answers of a draining connection do not concern its successor.
        guard self.errorRate != nil, id == self.connectionID, self.table.link == .ready,
            let isWrong = ErrorRateWindow.judge(error), !isWrong || isReachable()
        else { return nil }
        return self.errorRate?.ended(isWrong: isWrong, now: now())
    }
}

/// A client's calls, from their start to their completion: performs the decisions of ``DispatchTable`` on the socket
/// thread.
///
/// Almost all calls take the fast paths. The invariant: a fast path may be taken only if it has exactly the effects of
/// the general path, and it ends where that ends. The model's histories run both and compare the results with the
/// model. A plain call touches only ``hot``.
///
/// Tasks retain their engine, and may outlive the client.
final class CallEngine: @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable, or accessed only on the socket thread like the variables.
    let loop: SocketLoop
    let configuration: ClientConfiguration
    let traits: CallTraits
    let locks = TaskLocks()
    private let driver: any ConnectionDriver
    private let links: ClientLinks
    private let requests: any CallCarrier
    private let streams: any CallCarrier
    let interception: Interception
    private let reporter: CallReporter
    private let format: WireFormat

    // Unchecked: a call accesses it some ten times, only on the socket thread, and every access ends before other code
    // is called.
    #if !DEBUG && !CHECKED_EXCLUSIVITY
    @exclusivity(unchecked)
    #endif
    var hot: HotCalls
    /// The keys of the incomplete calls made by `dispatch`, by task identifier, except light ones.
    private var dispatched: [Int: DispatchKey] = [:]
    private var generator = SystemRandomNumberGenerator()
    private var timer: SocketLoop.TimerID?
    private var life = Life.open

    /// Whether new calls are accepted: not while earlier ones finish, nor after the client was released.
    private enum Life { case open, finishing, invalidated }

    /// The number of times that a call is sent again after a 504. In a rolling restart it may meet several servers that
    /// are about to end, but not forever.
    private static let maximumResends = 3

    init(
        _ configuration: ClientConfiguration,
        traits: CallTraits,
        driver: any ConnectionDriver,
        links: ClientLinks,
        carriers: (requests: any CallCarrier, streams: any CallCarrier),
        reporter: CallReporter,
        loop: SocketLoop
    ) {
        self.loop = loop
        self.configuration = configuration
        self.traits = traits
        self.driver = driver
        self.links = links
        self.requests = carriers.requests
        self.streams = carriers.streams
        self.interception = Interception(configuration.interceptors)
        self.reporter = reporter
        self.format = configuration.socket.wireFormat
        self.hot = HotCalls(configuration)
        self.hot.table.promote = { [unowned self] in self.promote($0, $1, deadline: $2) }
    }

    /// Whether new calls are accepted.
    var acceptsCalls: Bool { self.life == .open }
    /// The number of incomplete calls made by `dispatch`, without light ones.
    var dispatchedCount: Int { self.dispatched.count }

    // MARK: Requests on the fast path

    /// Starts a task at once, without a submission, if the caller runs where handlers run. Any thread. False if the
    /// task must be submitted.
    ///
    /// The general path is ``SocketTask/resume()``, which submits ``start(_:in:)``.
    ///
    /// - Parameter waiter: Notified when the task completes; nil keeps the task's present receiver.
    func startOnFastPath(_ task: SocketTask, _ waiter: TurnWaiter? = nil) -> Bool {
        guard self.traits.isPlain else { return false }
        return self.loop.ifHandlersRun { self.isSentOnFastPath(task, from: .suspended, waiter, in: &$0) }
    }

    /// Sends the request of a task in this state, if it can be sent with the next flush, unchanged, and without
    /// possible failure. False, without side effects, if the general path must be taken.
    ///
    /// The general path is the rest of ``start(_:in:)``: it adds the call to the table, begins an attempt, puts the
    /// request into its envelope, makes a frame, and sends it.
    private func isSentOnFastPath(
        _ task: SocketTask,
        from state: SocketTask.State,
        _ waiter: TurnWaiter? = nil,
        in turn: inout Turn
    ) -> Bool {
        let length = task.originalRequest.body.readableBytes
        guard self.traits.isPlain, self.canSendOnFastPath(task.originalRequest),
            task.leaves(from: state, waiter)
        else { return false }
        let deadline = self.traits.deadline(of: task.originalRequest, now: turn.now)
        let (key, serial) = self.hot.table.enterSent(task, deadline: deadline)
        task.flight.isSentOnFastPath(key, at: turn.now, until: deadline, bytes: length)
        if task.isDispatched { self.dispatched[task.taskIdentifier] = key }
        self.hot.link?._withUnsafeGuaranteedRef { link in
            link.sendOnFastPath(task.originalRequest.type, serial: serial, task.originalRequest.body, in: &turn)
        }
        if deadline < self.hot.timerFires { self.armTimer() }
        return true
    }

    /// Whether the request of a new call can be sent with the next flush, unchanged, and without possible failure.
    @inline(__always)
    private func canSendOnFastPath(_ request: borrowing SocketRequest) -> Bool {
        let length = request.body.readableBytes
        return length <= self.traits.largestPlainBody && self.hot.canSendOnFastPath(length: length)
            && self.hot.table.canSend && request.options.isPlain && self.format.isApplicationType(request.type)
    }

    /// Returns the turn whose handlers are running if a light call can be made in it, by
    /// ``send(_:_:to:resuming:in:)``, which gives it back to the loop. May be called on any thread. Nil if a task must
    /// be made and resumed.
    func turnOfHandlers(toSend request: borrowing SocketRequest) -> Turn? {
        guard self.traits.isLight, let turn = self.loop.takeTurnOfHandlers() else { return nil }
        guard self.canSendOnFastPath(request) else {
            turn.giveBack()
            return nil
        }
        return turn
    }

    /// Makes a light call in the turn that ``turnOfHandlers(toSend:)`` has returned, and sends its request.
    ///
    /// The general path is that of a task: ``startOnFastPath(_:_:)``. The parameters are not combined in a
    /// ``LightCall``, which is so large that it would be copied rather than moved.
    func send(
        _ identifier: Int,
        _ request: consuming SocketRequest,
        to handler: consuming CallHandler?,
        resuming waiter: LightCall.Waiter? = nil,
        in turn: inout Turn
    ) {
        let deadline = self.traits.deadline(of: request, now: turn.now)
        // Sent first, while it is available here, so that it need not be read from the table.
        let serial = self.hot.table.nextSerialToSend()
        self.sendBytes(of: request, serial, in: &turn)
        let now = turn.now
        self.hot.table.enterSent(serial: serial, deadline: deadline)
            .initialize(to: LightCall(identifier, consume request, consume handler, waiter, sent: now))
        if deadline < self.hot.timerFires { self.armTimer() }
    }

    /// Not inlined: a parameter is known to be retained.
    @inline(never)
    private func sendBytes(of request: borrowing SocketRequest, _ serial: UInt32, in turn: inout Turn) {
        self.hot.link?._withUnsafeGuaranteedRef {
            $0.sendOnFastPath(request.type, serial: serial, request.body, in: &turn)
        }
    }

    /// Makes a task of a light call that has been sent, since something other than its answer happens to it.
    private func promote(_ call: LightCall, _ key: DispatchKey, deadline: NIODeadline) -> SocketTask {
        let task = SocketTask(call, engine: self)
        task.wasSentLight(key, at: call.sent, until: deadline)
        self.dispatched[call.identifier] = key
        return task
    }

    // MARK: Answers on the fast path

    /// Receives frames of the standard format that are complete and valid, as most are, without creating `Frame`
    /// values. The first frame of another kind stays in the batch.
    ///
    /// The general path is ``ClientConnection/received(_:in:)``.
    func receiveOnFastPath(_ batch: inout Batch<FrameLanguage>, on connection: ClientConnection, in turn: inout Turn) {
        while let header = batch.soundApplicationHeader() {
            self.received(header, batch.takePayload(of: header), on: connection, in: &turn)
        }
    }

    /// Receives an answer or a push. A successful answer without an envelope completes its task at once, unless there
    /// are interceptors.
    private func received(
        _ header: FrameHeader,
        _ payload: consuming ByteBuffer,
        on connection: ClientConnection,
        in turn: inout Turn
    ) {
        guard header.status == .ok, header.type & FrameType.allFlags == 0, self.traits.isDirect,
            // Only frames of the standard format reach this code.
            header.serial != FrameSerial.push,
            // The end of a stream follows its items, and a last piece those before it.
            connection.streams?.claims(header.serial) != true
        else { return connection.receivedApplication(Frame(header, payload), in: &turn) }
        if let place = self.hot.table.takeAnsweredLight(serial: header.serial, on: connection.id) {
            let receiver = LightCall.takeReceiver(at: place)
            let response = SocketResponse(header, payload, connection.origin)
            return self.answered(receiver, response, on: connection, in: &turn)
        }
        guard var task = self.hot.table.takeAnswered(serial: header.serial, on: connection.id, keeping: false) else {
            return connection.receivedApplication(Frame(header, payload), in: &turn)
        }
        self.judge(nil, on: connection.id, in: &turn)
        guard !self.traits.isObserved, SocketTask.isUnshared(&task), task.hasHandlerAlone else {
            self.note(task, bytes: payload.readableBytes, from: connection.origin, in: &turn)
            return self.ended(task, SocketResponse(header, payload, connection.origin), in: &turn)
        }
        // No other code can access the task, so its metrics need not be kept.
        self.forgetDispatched(task)
        self.hot.retryBucket?.callWasAnswered()
        self.finishDrained(in: &turn)
        let response = SocketResponse(header, payload, connection.origin)
        guard self.traits.callsBackHere, let handler = task.takeHandlerOfUnshared() else {
            task.finishUnshared(consume response)
            return turn.callBack(.work(task))
        }
        turn.run(AnsweredCall(task, handler, consume response))
    }

    /// Completes a light call with its answer.
    @inline(__always)
    private func answered(
        _ receiver: consuming LightCall.Receiver,
        _ response: consuming SocketResponse,
        on connection: ClientConnection,
        in turn: inout Turn
    ) {
        self.judge(nil, on: connection.id, in: &turn)
        self.hot.retryBucket?.callWasAnswered()
        self.finishDrained(in: &turn)
        if let handler = receiver.handler {
            turn.run(AnsweredLightCall(handler: handler, response: response))
        } else if let waiter = receiver.waiter {
            turn.run(AnsweredWaiter(continuation: waiter, response: response))
        }
    }

    // MARK: Starting

    func start(_ task: SocketTask, in turn: inout Turn) {
        if self.isSentOnFastPath(task, from: .running, in: &turn) { return }
        self.begin(task, in: &turn)
    }

    /// Starts a task on the general path, which all streams take.
    func begin(_ task: SocketTask, in turn: inout Turn) {
        // Nil if cancelled meanwhile: the cancellation, which was also submitted, completes the task.
        guard let priority = task.begin() else { return }
        let request = task.originalRequest
        task.flight.queued.comes(at: turn.now)
        self.reporter.accepted(request, &task.flight)
        if self.life != .open {
            let error = self.life == .finishing ? CallErrors.invalidated : CallErrors.released
            return self.complete(task, error, in: &turn)
        }
        let isDirect = self.traits.isDirect || request.options.skipsInterceptors
        if isDirect {
            do throws(SocketError) {
                try self.check(request, of: task, in: &turn)
            } catch {
                return self.complete(task, error, in: &turn)
            }
        }
        // Nothing else bounds the number of calls that are in interceptors or wait between attempts.
        guard self.hot.table.hasRoom else {
            let error = CallErrors.tooManyCalls(self.hot.table.count, at: self.driver.currentEndpoint)
            return self.complete(task, error, in: &turn)
        }
        let deadline = self.traits.deadline(of: request, now: turn.now)
        let key = self.hot.table.enter(task, deadline: deadline)
        task.flight.deadline = self.carrier(of: task).deadline(of: request, within: deadline, now: turn.now)
        task.flight.key = key
        if task.isDispatched { self.dispatched[task.taskIdentifier] = key }
        if isDirect {
            self.attempt(Departure(task, key, priority), request, in: &turn)
        } else {
            self.interception.begin(task, key, for: self)
        }
        self.armTimer()
    }

    /// Refuses a request that can never be sent.
    func check(_ request: SocketRequest, of task: SocketTask, in turn: inout Turn) throws(SocketError) {
        try self.carrier(of: task).check(request, of: task, in: &turn)
    }

    @inline(__always)
    private func carrier(of task: SocketTask) -> any CallCarrier { task.isStream ? self.streams : self.requests }

    // MARK: Attempts

    /// Begins the next attempt of a call that is in the table.
    private func attempt(_ departure: Departure, _ request: SocketRequest, in turn: inout Turn) {
        let submission = self.hot.table.attempt(
            departure.key,
            departure.priority,
            bytes: request.waitingLength,
            isPatient: self.isPatient(departure.task, request)
        )
        self.follow(submission, of: departure, request, in: &turn)
    }

    /// Repeats the previous attempt of a call, of which the server ran nothing: before calls of its priority that have
    /// never been sent if it `isReturning`, and even if no connection is being made if it `isPatient`.
    func attemptAgain(
        _ task: SocketTask,
        _ key: DispatchKey,
        isPatient: Bool = true,
        isReturning: Bool,
        in turn: inout Turn
    ) {
        let request = task.request
        let departure = Departure(task, key, task.priority)
        let submission = self.hot.table.attemptAgain(
            key,
            departure.priority,
            bytes: request.waitingLength,
            isPatient: isPatient,
            isReturning: isReturning
        )
        self.follow(submission, of: departure, request, in: &turn)
    }

    private func follow(
        _ submission: CallTable.Submission,
        of departure: Departure,
        _ request: SocketRequest,
        in turn: inout Turn
    ) {
        switch submission {
        case .send(_, let serial):
            self.carry(departure, request, serial: serial, in: &turn)
        case .wait:
            if self.hot.table.link == .offline || self.links.isReconnectDeferred {
                self.links.reconnectSooner(in: &turn)
            }
        case .refuse(let refusal):
            if let idle = self.hot.table.endAttempt(departure.key) {
                let error = self.hot.error(of: refusal, at: self.driver.currentEndpoint)
                self.ended(idle, error ?? self.driver.notConnected(), in: &turn)
            }
            if refusal == .offline { self.links.reconnectSooner(in: &turn) }
        }
    }

    /// Whether the call waits for a connection even if none is being made. Retries do, and so do all calls while the
    /// server goes away.
    private func isPatient(_ task: SocketTask, _ request: SocketRequest) -> Bool {
        guard self.hot.table.link != .ready, !self.driver.isClosed else { return false }
        return self.hot.table.link == .goingAway || task.flight.retries > 0
            || (request.options.waitsForConnectivity ?? self.configuration.waitsForConnectivity)
    }

    /// Sends the request of an attempt.
    private func carry(_ departure: Departure, _ request: SocketRequest, serial: UInt32, in turn: inout Turn) {
        let (task, key) = (departure.task, departure.key)
        task.flight.attempts += 1
        task.flight.firstByte = .init()
        do throws(SocketError) {
            let carried = try self.carrier(of: task).carry(
                departure,
                request,
                serial: serial,
                on: self.links.current,
                for: self,
                in: &turn
            )
            switch carried {
            case .sent: self.leaves(task, request, serial: serial, in: &turn)
            case .queued: self.isQueued(key)
            case .reported: break
            case .parked: self.park(task, key, in: &turn)
            }
        } catch {
            self.isQueued(key)
            if let attempt = self.hot.table.endAttempt(key) { self.ended(attempt, error, in: &turn) }
        }
    }

    /// Sends calls that waited for the connection, as long as more of them may be in flight.
    private func sendWaiting(in turn: inout Turn) {
        while let next = self.hot.table.nextWaiting() {
            guard let serial = next.serial else { continue }
            let task = next.call
            self.carry(Departure(task, next.key, task.priority), task.request, serial: serial, in: &turn)
        }
    }

    /// Records that a request waits until the server reads.
    func isQueued(_ key: DispatchKey) { self.hot.table.queued(key) }

    /// Records that a request waits until the server reads, and moves the deadline of its call.
    func isQueued(_ key: DispatchKey, until deadline: NIODeadline) {
        self.hot.table.queued(key)
        self.hot.table.setDeadline(deadline, key)
        self.armTimer()
    }

    /// Ends an attempt of which nothing was sent. Its call stays in the table, and is continued by its carrier.
    private func park(_ task: SocketTask, _ key: DispatchKey, in turn: inout Turn) {
        self.isQueued(key)
        guard self.hot.table.endAttempt(key) != nil else { return }
        task.flight.attempts -= 1
        self.finishDrained(in: &turn)
    }

    /// Whether a call is still in the table, without an attempt.
    func isParked(_ task: SocketTask, _ key: DispatchKey) -> Bool {
        task.flight.key == key && self.hot.table.phase(of: key) == .idle
    }

    /// Continues a parked call, whose body has been compressed. The connection may have been lost meanwhile.
    func continueParked(_ task: SocketTask, _ key: DispatchKey, in turn: inout Turn) {
        guard !self.driver.isClosed else {
            if let idle = self.hot.table.endAttempt(key) { self.ended(idle, Driver.closedByUser, in: &turn) }
            return
        }
        let isPatient = self.hot.isReady || self.isPatient(task, task.request)
        self.attemptAgain(task, key, isPatient: isPatient, isReturning: false, in: &turn)
        self.armTimer()
    }

    // MARK: Progress

    /// A frame is about to be sent. Returns false if it is no longer needed.
    func willSend(type: UInt32, serial: UInt32, on id: ConnectionID, in turn: inout Turn) -> Bool {
        guard self.format.isApplicationType(type & ~self.traits.flagMask) else { return true }
        guard self.hot.table.willSend(serial: serial, on: id), let task = self.hot.table.call(withSerial: serial)
        else { return false }
        self.leaves(task, task.request, serial: serial, in: &turn)
        return true
    }

    /// Records the number of bytes of a frame's payload that have been sent.
    func sent(type: UInt32, serial: UInt32, payloadBytes: Int, in turn: inout Turn) {
        guard self.format.isApplicationType(type & ~self.traits.flagMask),
            let task = self.hot.table.call(withSerial: serial)
        else { return }
        self.sent(payloadBytes, of: task, task.request, serial: serial, in: &turn)
    }

    /// Records that the request's first bytes are being sent. A small request is sent as a whole.
    private func leaves(_ task: SocketTask, _ request: SocketRequest, serial: UInt32, in turn: inout Turn) {
        task.flight.sent.comes(at: turn.now)
        let length = task.flight.payloadLength ?? request.body.readableBytes
        if length > Frame.unslicedLength { return }
        self.sent(length, of: task, request, serial: serial, in: &turn)
    }

    /// Records the number of bytes of the payload that have been sent.
    private func sent(_ size: Int, of task: SocketTask, _ request: SocketRequest, serial: UInt32, in turn: inout Turn) {
        guard task.sent(payloadBytes: size, of: request, in: &turn),
            // A server may begin its answer before it has received the whole request.
            let timeout = request.options.firstResponseTimeout ?? self.configuration.firstResponseTimeout,
            !task.flight.firstByte.hasCome, !task.isStream
        else { return }
        let end = turn.now.advanced(clamping: TimeAmount(clamping: timeout))
        self.hot.table.expectFirstResponse(serial: serial, by: end)
        self.armTimer()
    }

    /// Whether a call waits for the answer to this serial.
    func isAwaited(_ serial: UInt32) -> Bool { self.hot.table.isAwaited(serial: serial) }

    /// Records that `received` of `expected` bytes of an answer's payload have arrived; nil while their number is not
    /// known.
    func isReceiving(_ serial: UInt32, _ received: Int, of expected: Int?, in turn: inout Turn) {
        guard let task = self.hot.table.responseBegins(serial: serial) else { return }
        task.flight.firstByte.comesFirst(at: turn.now)
        if task.progressed(bytesReceived: received, of: expected) { task.showProgress(in: &turn) }
    }

    // MARK: Answers on the general path

    /// The call that an answer with this serial is for; nil if no call waits for it.
    func call(withSerial serial: UInt32) -> SocketTask? { self.hot.table.call(withSerial: serial) }

    /// Ends the attempt that an answer with status 200 is for, and returns its call. Nil if no call waits for it, which
    /// ``take(_:on:isFinal:)`` counts.
    func takeAnswered(_ serial: UInt32, on id: ConnectionID) -> SocketTask? {
        self.hot.table.takeAnswered(serial: serial, on: id, keeping: !self.traits.isDirect)
    }

    /// Ends the attempt that an answer is for. Nil if no call waits for it, which is counted.
    ///
    /// - Parameter isFinal: Whether a correct server sends nothing more for this serial.
    func take(_ serial: UInt32, on id: ConnectionID, isFinal: Bool = true) -> CallAttempt? {
        switch self.hot.table.receive(serial: serial, on: id, isFinal: isFinal) {
        case .answer(let attempt): return attempt
        case .late: self.reporter.count(\.lateResponses)
        case .duplicate: self.reporter.count(\.duplicateResponses)
        case .unknown: self.reporter.count(\.unknownResponses)
        }
        return nil
    }

    /// Notes the length and the origin of an answer.
    func note(_ task: SocketTask, bytes length: Int, from origin: SocketResponse.Origin, in turn: inout Turn) {
        task.flight.firstByte.comesFirst(at: turn.now)
        task.flight.bytesReceived += length
        task.flight.origin = origin
    }

    /// Handles the answer to a call whose attempt has ended.
    func answered(_ task: SocketTask, _ response: SocketResponse, on id: ConnectionID, in turn: inout Turn) {
        self.judge(nil, on: id, in: &turn)
        self.ended(task, response, in: &turn)
    }

    /// Asks the server of an attempt whose answer cannot be used to stop working on it.
    func abandon(_ attempt: CallAttempt, in turn: inout Turn) {
        self.carrier(of: attempt.call).abandon(attempt, in: &turn)
    }

    /// Continues a parked call, whose answer has been decompressed.
    func answered(_ parked: CallAttempt, _ outcome: CallOutcome, in turn: inout Turn) {
        switch outcome {
        case .success(let response):
            if self.traits.isDirect { self.hot.table.remove(parked.key) }
            self.answered(parked.call, response, on: parked.connection, in: &turn)
        case .failure(let error):
            self.failed(parked, error, in: &turn)
        }
    }

    /// Judges the server by the end of an attempt; nil stands for the expected answer.
    private func judge(_ error: SocketError?, on id: ConnectionID, in turn: inout Turn) {
        let verdict = self.hot.judge(error, on: id, now: turn.now, isReachable: self.driver.isNetworkReachable)
        guard let verdict else { return }
        let endpoint = self.links.endpoint(of: id)
        self.driver.perform(.serverFails(endpoint, wrong: verdict.wrong, calls: verdict.calls), in: &turn)
    }

    // MARK: The ends of attempts

    /// Ends the attempt of a call, which stays in the table; nil if the call has completed.
    func endAttempt(_ key: DispatchKey) -> CallAttempt? { self.hot.table.endAttempt(key) }

    /// Handles an attempt that has failed after it was sent, by which its server is judged.
    func failed(_ attempt: CallAttempt, _ error: SocketError, in turn: inout Turn) {
        self.judge(error, on: attempt.connection, in: &turn)
        self.ended(attempt, error, in: &turn)
    }

    /// Handles a failed attempt: sends the call again, passes the error to its interceptors, or completes the call.
    private func ended(_ attempt: CallAttempt, _ error: SocketError, in turn: inout Turn) {
        let task = attempt.call
        self.noteOrigin(of: attempt)
        var error = error
        if self.isSentAgain(attempt, error, in: &turn) { return self.finishDrained(in: &turn) }
        if self.retries(attempt, error, in: &turn) { return self.finishDrained(in: &turn) }
        if task.flight.retries > 0 { error.message += "; this was attempt \(attempt.count), and it is the last" }
        if !self.traits.isDirect, let reply = self.interception.takeReply(of: attempt.key) {
            let reported = self.withActualDelivery(error, task)
            // Even if the interceptors change the error, and whether or not they make the call again.
            if !error.notExecuted { task.flight.mayHaveRun = true }
            self.carrier(of: task).attemptFailed(task, reported)
            self.finishDrained(in: &turn)
            return reply.resume(returning: .failure(reported))
        }
        self.hot.table.remove(attempt.key)
        self.complete(task, error, in: &turn)
    }

    /// Handles the answer that ended an attempt: passes it to the call's interceptors, or completes the call.
    private func ended(_ task: SocketTask, _ response: SocketResponse, in turn: inout Turn) {
        self.hot.retryBucket?.callWasAnswered()
        if !self.traits.isDirect, let key = task.flight.key {
            if let reply = self.interception.takeReply(of: key) {
                task.flight.mayHaveRun = true
                self.finishDrained(in: &turn)
                return reply.resume(returning: .success(response))
            }
            // A call that skips the interceptors is still in the table.
            self.hot.table.remove(key)
        }
        self.complete(task, response, in: &turn)
    }

    /// Corrects the error's delivery: a request that was not sent in the last attempt may have run in an earlier one.
    private func withActualDelivery(_ error: SocketError, _ task: SocketTask) -> SocketError {
        guard task.flight.mayHaveRun, error.notExecuted else { return error }
        var error = error
        error.delivery = .sentUnknown
        return error
    }

    /// Notes where the attempt was sent, before the table forgets it.
    private func noteOrigin(of attempt: CallAttempt) {
        if attempt.serial != nil { attempt.call.flight.origin = self.links.origin(of: attempt.connection) }
    }

    private func retries(_ attempt: CallAttempt, _ error: SocketError, in turn: inout Turn) -> Bool {
        let task = attempt.call
        let request = task.request
        guard self.carrier(of: task).mayRepeat(task),
            let policy = request.options.retryPolicy ?? self.configuration.retryPolicy, !self.driver.isClosed,
            let delay = policy.delay(
                after: error,
                of: request,
                attempts: attempt.count,
                retries: task.flight.retries,
                using: &self.generator
            )
        else { return false }
        let due = turn.now.advanced(clamping: TimeAmount(clamping: delay))
        guard due < task.flight.deadline, self.hot.retryBucket?.take() ?? true else { return false }
        task.flight.retries += 1
        task.flight.lastFailure = error
        task.flight.mayHaveRun = task.flight.mayHaveRun || !error.notExecuted
        self.hot.table.backOff(attempt.key, until: due)
        self.reporter.retries(task.originalRequest.type, task.flight, after: error, in: delay)
        if task.progressStartsOver() { task.showProgress(in: &turn) }
        self.armTimer()
        return true
    }

    /// Sends a call again that the server did not run because it is shutting down: on the next connection, within its
    /// deadline, whatever its retry policy.
    ///
    /// - Returns: Whether it was sent again; otherwise the call fails.
    private func isSentAgain(_ attempt: CallAttempt, _ error: SocketError, in turn: inout Turn) -> Bool {
        guard error.code == .draining, error.delivery == .answered, !self.driver.isClosed else { return false }
        // Even if the server has sent no go-away.
        if attempt.connection == self.hot.connectionID, self.hot.isReady {
            let departure = GoAway(reason: "it answers that it is about to end (504)")
            self.driver.perform(.goAway(attempt.connection, departure, isAnnounced: false), in: &turn)
        }
        let task = attempt.call
        guard task.flight.resends < Self.maximumResends, self.carrier(of: task).mayRepeat(task),
            attempt.connection != self.hot.connectionID || !self.hot.isReady
        else { return false }
        task.flight.resends += 1
        task.flight.lastFailure = error
        if task.progressStartsOver() { task.showProgress(in: &turn) }
        self.reporter.isSentAgain(task.originalRequest.type, task.flight, after: error)
        self.attemptAgain(task, attempt.key, isReturning: true, in: &turn)
        return true
    }

    // MARK: Time

    /// Sets the single timer of all calls to the earliest alarm, if it would fire later. Completed calls do not move
    /// it.
    func armTimer() {
        guard let alarm = self.hot.table.earliestAlarm, alarm < self.hot.timerFires else { return }
        self.hot.timerFires = alarm
        if let timer = self.timer { self.loop.removeTimer(timer) }
        self.timer = self.loop.setTimer(alarm) { self.timerFired(in: &$0) }
    }

    private func timerFired(in turn: inout Turn) {
        self.timer = nil
        // Due alarms are handled below and require no timer.
        self.hot.timerFires = .distantPast
        while let alarm = self.hot.table.nextAlarm(now: turn.now) {
            switch alarm {
            case .expired(let attempt): self.expired(attempt, in: &turn)
            case .noFirstResponse(let attempt): self.answerDidNotBegin(attempt, in: &turn)
            case .retry(let key, let task):
                self.attempt(Departure(task, key, task.priority), task.request, in: &turn)
            }
        }
        self.hot.table.dropStaleAlarms()
        self.hot.timerFires = .distantFuture
        self.armTimer()
    }

    /// Completes a call that timed out.
    private func expired(_ attempt: CallAttempt, in turn: inout Turn) {
        let task = attempt.call
        self.noteOrigin(of: attempt)
        self.abandon(attempt, in: &turn)
        if task.isStream {
            return self.complete(task, self.streams.timedOut(attempt, by: .deadline, for: self), in: &turn)
        }
        if self.format.resynchronises, let serial = attempt.serial {
            // If the length of an incomplete answer is wrong, it withholds later ones. Only formats with separators
            // allow to abandon it.
            self.links.connection(attempt.connection)?.link.giveUp(in: &turn) { $0.serial == serial }
        }
        // Perhaps only this call is affected. If not, the link should no longer be trusted.
        if attempt.phase == .sent { self.driver.perform(.suspect(attempt.connection), in: &turn) }
        let error = self.requests.timedOut(attempt, by: .deadline, for: self)
        self.judge(error, on: attempt.connection, in: &turn)
        self.complete(task, error, in: &turn)
    }

    /// Ends an attempt whose answer did not begin in time.
    private func answerDidNotBegin(_ attempt: CallAttempt, in turn: inout Turn) {
        self.abandon(attempt, in: &turn)
        self.driver.perform(.suspect(attempt.connection), in: &turn)
        let error = self.carrier(of: attempt.call).timedOut(attempt, by: .firstResponse, for: self)
        self.failed(attempt, error, in: &turn)
    }

    // MARK: Cancelling

    func cancel(_ task: SocketTask, in turn: inout Turn) {
        // A completed task must not be written to, since other threads read it.
        guard task.state != .completed else { return }
        var error = CallErrors.cancelled(task.originalRequest.type, at: self.driver.currentEndpoint)
        if let attempt = self.remove(task, in: &turn) {
            if attempt.serial != nil { error.endpoint = self.links.endpoint(of: attempt.connection) }
            error.serial = attempt.serial
            error.delivery = attempt.phase == .sent ? .sentUnknown : .notSent
        }
        // A task that is not in the table was never started, or is complete; then this has no effect.
        self.complete(task, error, in: &turn)
    }

    func cancelAll(in turn: inout Turn) {
        for key in self.hot.table.keys { self.cancel(key, in: &turn) }
    }

    func cancelTask(withIdentifier identifier: Int, in turn: inout Turn) {
        let key = self.dispatched[identifier] ?? self.hot.table.key { $0.identifier == identifier }
        if let key { self.cancel(key, in: &turn) }
    }

    private func cancel(_ key: DispatchKey, in turn: inout Turn) {
        guard let task = self.hot.table.call(for: key), task.beginCancelling() else { return }
        self.cancel(task, in: &turn)
    }

    func reprioritize(_ task: SocketTask) {
        if let key = task.flight.key { self.hot.table.setPriority(task.priority, key) }
    }

    /// Removes the call from those that can be cancelled by their identifiers.
    @inline(__always)
    private func forgetDispatched(_ task: SocketTask) {
        if task.isDispatched { self.dispatched[task.taskIdentifier] = nil }
    }

    /// Ends a call with an error of this side, and notifies the server.
    func end(_ task: SocketTask, _ error: SocketError, in turn: inout Turn) {
        guard let attempt = self.remove(task, in: &turn) else { return }
        var error = error
        error.endpoint = self.links.endpoint(of: attempt.connection)
        error.serial = attempt.serial
        self.complete(task, error, in: &turn)
    }

    /// Removes a call whose attempt is abandoned; nil if it is not in the table.
    private func remove(_ task: SocketTask, in turn: inout Turn) -> CallAttempt? {
        guard let key = task.flight.key, let attempt = self.hot.table.remove(key) else { return nil }
        self.noteOrigin(of: attempt)
        self.abandon(attempt, in: &turn)
        return attempt
    }

    // MARK: Interceptors

    /// The progress of a call; nil if it has completed.
    func phase(of key: DispatchKey) -> CallTable.Phase? { self.hot.table.phase(of: key) }

    /// Begins the first attempt that an interceptor has requested.
    func attemptFirst(_ task: SocketTask, _ key: DispatchKey, in turn: inout Turn) {
        self.hot.table.resetAttempts(key)
        self.attempt(Departure(task, key, task.priority), task.request, in: &turn)
        self.armTimer()
    }

    /// Completes a call with the result of its interceptors.
    func interceptorsReturned(_ task: SocketTask, _ result: CallOutcome, in turn: inout Turn) {
        // Otherwise the call has completed already.
        guard let key = task.flight.key, let attempt = self.hot.table.remove(key) else { return }
        // They may have returned without waiting for an answer that they requested.
        self.abandon(attempt, in: &turn)
        switch result {
        case .success(let response): self.complete(task, response, in: &turn)
        case .failure(let error): self.complete(task, error, in: &turn)
        }
    }

    // MARK: Completion

    /// Completes a task that is no longer in the table, or never was.
    private func complete(_ task: SocketTask, _ error: SocketError, in turn: inout Turn) {
        let error = self.withActualDelivery(error, task)
        self.willComplete(task, .failure(error), in: &turn)
        task.complete(error, in: &turn)
    }

    private func complete(_ task: SocketTask, _ response: SocketResponse, in turn: inout Turn) {
        self.willComplete(task, .success(response), in: &turn)
        task.complete(response, in: &turn)
    }

    @inline(__always)
    private func willComplete(_ task: SocketTask, _ result: @autoclosure () -> CallOutcome, in turn: inout Turn) {
        if task.flight.queued.hasCome, !task.flight.completed.hasCome {
            task.flight.completed.comes(at: turn.now)
            if self.traits.isObserved {
                self.reporter.completed(task.originalRequest.type, &task.flight, with: result())
            }
        }
        let key = task.flight.key
        task.flight.key = nil
        self.forgetDispatched(task)
        if !self.traits.isDirect, let key { self.interception.completed(key, result()) }
        if task.isStream { self.streams.completes(task) }
        self.finishDrained(in: &turn)
    }

    // MARK: Connections

    func linkIsConnecting() { self.hot.table.linkIsConnecting() }

    /// Sends requests on the link of this connection, which becomes ready; nil for none.
    func adopt(_ connection: ClientConnection?) { self.hot.adopt(connection) }

    /// Sends calls on this connection from now on, first those that waited for it.
    func linkIsReady(_ id: ConnectionID, in turn: inout Turn) {
        self.hot.linkIsReady(id)
        self.sendWaiting(in: &turn)
        self.armTimer()
    }

    /// Sends nothing more on the current connection. The calls that were not sent on it wait for its successor.
    func linkGoesAway(in turn: inout Turn) {
        for attempt in self.hot.table.linkGoesAway() {
            let task = attempt.call
            if task.isStream { self.streams.abandon(attempt, in: &turn) }
            // It was never sent.
            task.flight.attempts = max(1, task.flight.attempts) - 1
            self.attemptAgain(task, attempt.key, isReturning: false, in: &turn)
        }
    }

    /// The connection has a successor, and its calls finish.
    func linkDrains(_ id: ConnectionID, in turn: inout Turn) {
        self.hot.table.linkGoesAway(id)
        self.finishDrained(in: &turn)
    }

    /// Sends nothing more on a connection that is lost. ``linkWasLost(_:_:in:)`` must follow.
    func linkIsLost(_ id: ConnectionID) { self.hot.linkIsLost(id) }

    /// Ends the attempts in flight on a connection that was lost.
    func linkWasLost(_ id: ConnectionID, _ error: SocketError, in turn: inout Turn) {
        for lost in self.hot.table.linkWasLost(id) {
            var error = error
            error.serial = lost.serial
            error.delivery = lost.phase == .sent ? .sentUnknown : .notSent
            self.ended(lost, error, in: &turn)
        }
    }

    /// Ends the attempts that waited for a connection, since no attempt to connect is in progress.
    ///
    /// - Parameter isForGood: Whether none will be made automatically, so that no call need wait for one.
    func linkIsOffline(_ error: SocketError, isForGood: Bool, in turn: inout Turn) {
        for waiting in self.hot.table.linkIsOffline(isForGood: isForGood) {
            var error = error
            error.delivery = .notSent
            self.ended(waiting, error, in: &turn)
        }
        self.armTimer()
    }

    /// Releases the drained connections that have nothing left in flight.
    func finishDrained(in turn: inout Turn) {
        guard self.hot.table.hasDrained else { return }
        while let id = self.hot.table.nextDrained() { self.links.finishDrained(id, in: &turn) }
    }

    func turnEnds(in turn: inout Turn) {
        if self.hot.table.waitingCount > 0, self.hot.isReady { self.sendWaiting(in: &turn) }
    }

    func turnEnded() {
        if self.hot.finished != nil, self.hot.table.count == 0 { self.hot.finished.take()?() }
        guard self.traits.isObserved else { return }
        self.driver.measure()
        self.reporter.measure(inFlight: self.hot.table.inFlightCount, waiting: self.hot.table.waitingCount)
    }

    // MARK: The end

    /// Refuses new calls from now on, and calls `finished` once the earlier ones have completed.
    func finishTasks(_ finished: @escaping () -> Void) {
        guard self.life == .open else { return }
        self.life = .finishing
        self.hot.table.takesCalls = false
        self.hot.finished = finished
    }

    /// Completes all calls, after the driver was invalidated.
    func invalidate(in turn: inout Turn) {
        self.life = .invalidated
        if let timer = self.timer { self.loop.removeTimer(timer) }
        for key in self.hot.table.keys {
            guard let removed = self.hot.table.remove(key) else { continue }
            var error = CallErrors.released
            error.serial = removed.serial
            if removed.phase == .sent { error.delivery = .sentUnknown }
            self.complete(removed.call, error, in: &turn)
        }
        self.turnEnded()
    }
}

extension Turn {
    /// Runs `callback` on a queue; nil for the client's.
    mutating func callBack(_ callback: SocketCallback, on queue: CallbackQueue?) {
        switch queue?.target {
        case nil: self.callBack(callback)
        case .queue(let queue)?: queue.async { callback.run() }
        case .socketThread?: self.run(callback)
        }
    }
}

/// The handler of an answered call, which runs after the units of this read have been processed.
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

    init(_ task: SocketTask, _ handler: @escaping CallHandler, _ response: consuming SocketResponse) {
        self.task = task
        self.answer = Answer(handler: handler, response: response)
    }

    static func run(at place: UnsafeMutableRawPointer) {
        // Moved out separately: a copy would count references.
        let call = place.assumingMemoryBound(to: Self.self)
        guard let task = call.pointer(to: \.task), let answer = call.pointer(to: \.answer) else {
            preconditionFailure("stored properties have addresses")
        }
        task.deinitialize(count: 1)
        answer.move().run()
    }
}
