// SPDX-License-Identifier: Apache-2.0
import Dispatch
import HHSocket
import NIOCore
import Tracing

/// State that every call touches.
struct HotCalls: ~Copyable {
    var table: ClientCalls
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
        self.table = ClientCalls(
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

    // MARK: Requests

    /// Sends a request on the fast path. Not inlined: a parameter is known to be retained. Mutating, since a borrowed
    /// value of this size would be copied for the call.
    @inline(never)
    mutating func send(_ request: borrowing SocketRequest, serial: UInt32, in turn: inout Turn) {
        self.link?._withUnsafeGuaranteedRef {
            $0.sendOnFastPath(request.type, serial: serial, request.body, in: &turn)
        }
    }

    // MARK: Limits

    /// The error of a call that exceeds a limit; nil if there is no connection for it.
    func error(of refusal: ClientCalls.Refusal, at endpoint: Endpoint?) -> SocketError? {
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

/// A client's calls, from their start to their completion: performs the decisions of ``CallTable`` on the socket
/// thread.
///
/// Almost all calls take the fast paths. The invariant: a fast path may be taken only if it has exactly the effects of
/// the general path, and it ends where that ends. The model's histories run both and compare the results with the
/// model. A plain call touches only ``hot``.
///
/// Tasks retain their engine, and may outlive the client.
final class CallEngine: AwaitedCallOwner, InterceptedCalls, @unchecked Sendable {
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
    private let rules: FrameRules
    private let format: WireFormat

    // Unchecked: a call accesses it some ten times, only on the socket thread, and every access ends before other code
    // is called.
    #if !DEBUG && !CHECKED_EXCLUSIVITY
    @exclusivity(unchecked)
    #endif
    var hot: HotCalls
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
        _ rules: FrameRules,
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
        self.rules = rules
        self.format = rules.format
        self.hot = HotCalls(configuration)
    }

    /// Whether new calls are accepted.
    var acceptsCalls: Bool { self.life == .open }

    // MARK: Requests on the fast path

    /// Starts a task at once, without a submission, if the caller runs where handlers run. Any thread. False if the
    /// task must be submitted.
    ///
    /// The general path is ``SocketTask/resume()``, which submits ``start(_:in:)``.
    func startOnFastPath(_ task: SocketTask) -> Bool {
        guard self.traits.isPlain else { return false }
        return self.loop.ifHandlersRun { self.isSentOnFastPath(task, from: .suspended, in: &$0) }
    }

    /// Sends the request of a task in this state, if it can be sent with the next flush, unchanged, and without
    /// possible failure. False, without side effects, if the general path must be taken.
    ///
    /// The general path is the rest of ``start(_:in:)``: it adds the call to the table, begins an attempt, puts the
    /// request into its envelope, makes a frame, and sends it.
    private func isSentOnFastPath(_ task: SocketTask, from state: SocketTask.State, in turn: inout Turn) -> Bool {
        guard self.traits.isPlain, self.canSendOnFastPath(task.originalRequest), task.startSentWhole(from: state) else {
            return false
        }
        let identifier = task.identifierToCancel
        task.enters(self.sendNow(task.originalRequest, .task(task), identifier: identifier, in: &turn))
        return true
    }

    /// Whether the request of a new call can be sent with the next flush, unchanged, and without possible failure.
    @inline(__always)
    private func canSendOnFastPath(_ request: borrowing SocketRequest) -> Bool {
        let length = request.body.readableBytes
        return length <= self.traits.largestPlainBody && self.hot.canSendOnFastPath(length: length)
            && self.hot.table.canSend && request.options.isPlain && self.format.isApplicationType(request.type)
    }

    /// Takes the turn whose handlers are running if a call can be made in it by ``send(_:_:identifier:in:)``; the
    /// caller gives it back to the loop. May be called on any thread. Nil if the call must be submitted.
    func turnOfHandlers(toSend request: borrowing SocketRequest) -> Turn? {
        guard self.traits.isPlain, let turn = self.loop.takeTurnOfHandlers() else { return nil }
        guard self.canSendOnFastPath(request) else {
            turn.giveBack()
            return nil
        }
        return turn
    }

    /// Makes a call without an object in the turn that ``turnOfHandlers(toSend:)`` has returned, and sends its request.
    ///
    /// The general path is that of a task: ``startOnFastPath(_:)``.
    @inline(__always)
    func send(_ request: consuming SocketRequest, _ end: consuming CallEnd, identifier: Int, in turn: inout Turn) {
        let key = self.sendNow(request, end, identifier: identifier, in: &turn)
        self.hot.table.slot(of: key).initialize(to: request)
    }

    /// Sends a request with the next flush, and enters its call.
    @inline(__always)
    private func sendNow(
        _ request: borrowing SocketRequest,
        _ end: consuming CallEnd,
        identifier: Int,
        in turn: inout Turn
    ) -> DispatchKey {
        let now = turn.now
        let deadline = self.traits.deadline(of: request, now: now)
        // Sent first, while it is available here, so that it need not be read from the table.
        let serial = self.hot.table.nextSerialToSend()
        self.hot.send(request, serial: serial, in: &turn)
        let facts = CallFacts(identifier: identifier, queued: now, sent: now)
        let key = self.hot.table.enterSent(end, facts, serial: serial, deadline: deadline)
        if deadline < self.hot.timerFires { self.armTimer() }
        return key
    }

    // MARK: Requests without a flight

    /// The connection on which a request can be sent unchanged, in slices or once the server reads; nil if that is not
    /// certain.
    private func connection(toSend request: borrowing SocketRequest) -> ClientConnection? {
        guard self.traits.isPlain, self.configuration.compression == nil, request.options.isPlain,
            self.hot.table.canSend, self.hot.link != nil, self.format.isCallType(request.type),
            // With streams, long requests are sent in pieces.
            let connection = self.links.current, connection.streams == nil
        else { return nil }
        return connection
    }

    /// Sends the request of a new call unchanged, which leaves in slices, or waits until the server reads.
    ///
    /// The general path is ``begin(_:_:context:in:)``.
    private func send(
        _ request: SocketRequest,
        _ end: consuming CallEnd,
        identifier: Int,
        priority: FramePriority,
        on connection: ClientConnection,
        in turn: inout Turn
    ) -> DispatchKey {
        let deadline = self.traits.deadline(of: request, now: turn.now)
        let serial = self.hot.table.nextSerialToSend()
        let facts = CallFacts(identifier: identifier, queued: turn.now)
        let key = self.hot.table.enterSent(end, facts, serial: serial, deadline: deadline)
        let frame = Frame(type: request.type, serial: serial, payload: request.body)
        do throws(SocketError) {
            try self.rules.check(frame)
            if try self.rules.send(frame, priority, on: connection.link, to: connection.endpoint, in: &turn) {
                self.sendingBegan(serial, on: connection.id, in: &turn)
            } else {
                self.isQueued(key)
            }
        } catch {
            self.isQueued(key)
            if let attempt = self.hot.table.endAttempt(key) { self.ended(attempt, error, in: &turn) }
        }
        if deadline < self.hot.timerFires { self.armTimer() }
        return key
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
        _ payload: consuming LentBytes,
        on connection: ClientConnection,
        in turn: inout Turn
    ) {
        guard header.status == .ok, header.type & FrameType.allFlags == 0, self.traits.isDirect,
            // Only frames of the standard format reach this code.
            header.serial != FrameSerial.push,
            // The end of a stream follows its items, and a last piece those before it.
            connection.streams?.claims(header.serial) != true
        else { return connection.receivedApplication(ArrivedFrame(header, payload), in: &turn) }
        let type = self.traits.isObserved ? self.hot.table.typeWithoutFlight(header.serial, on: connection.id) : nil
        guard let answered = self.hot.table.takeAnswered(serial: header.serial, on: connection.id) else {
            return connection.receivedApplication(ArrivedFrame(header, payload), in: &turn)
        }
        let response = SocketResponse(header, body: payload.lend(), origin: connection.origin)
        self.complete(answered, by: response, observed: type, on: connection, in: &turn)
    }

    /// Completes a call that its answer has removed from the table.
    ///
    /// - Parameter type: The type of its request, if its completion must be reported here.
    @inline(__always)
    private func complete(
        _ answered: consuming ClientCalls.Answered,
        by response: consuming SocketResponse,
        observed type: UInt32?,
        on connection: ClientConnection,
        in turn: inout Turn
    ) {
        self.isAnswered(on: connection.id, in: &turn)
        let facts = answered.facts
        if let type { self.reporter.answered(type, facts, with: copy response, at: turn.now) }
        switch answered.take() {
        case .handler(let handler):
            turn.run(AnsweredHandler(handler, consume response))
        case .waiter(let waiter):
            turn.run(AnsweredWaiter(continuation: waiter, response: consume response))
        case .nobody:
            break
        case .task(let task):
            let callsBackHere = self.traits.callsBackHere
            SocketTask.complete(task, consume response, facts: facts, callsBackHere: callsBackHere, in: &turn)
        case .awaited(let call):
            turn.resume(call.finish(.success(consume response)))
        case .flight(let flight):
            flight.isAnswered(response.body.readableBytes, from: connection.origin, at: turn.now)
            self.ended(flight, response, in: &turn)
        }
    }

    /// Records that an attempt was answered as expected.
    @inline(__always)
    private func isAnswered(on id: ConnectionID, in turn: inout Turn) {
        self.judge(nil, on: id, in: &turn)
        self.hot.retryBucket?.callWasAnswered()
        self.finishDrained(in: &turn)
    }

    // MARK: Starting

    func start(_ task: SocketTask, in turn: inout Turn) {
        if self.isSentOnFastPath(task, from: .running, in: &turn) { return }
        // Nil if cancelled meanwhile: the cancellation, which was also submitted, completes the task.
        guard let (priority, context) = task.begin() else { return }
        let (request, number) = (task.originalRequest, task.identifierToCancel)
        let key = self.start(request, .task(task), identifier: number, priority: priority, context: context, in: &turn)
        if let key { task.enters(key) }
    }

    func start(_ call: AwaitedCall, in turn: inout Turn) {
        let request = call.request
        if self.traits.isPlain, self.canSendOnFastPath(request) {
            return call.enters(self.sendNow(request, .awaited(call), identifier: 0, in: &turn))
        }
        let priority = request.options.priority
        if let key = self.start(request, .awaited(call), priority: priority, context: call.context, in: &turn) {
            call.enters(key)
        }
    }

    /// Starts a call that cannot be sent with the next flush. Returns its key if it has no flight.
    private func start(
        _ request: SocketRequest,
        _ end: consuming CallEnd,
        identifier: Int = 0,
        priority: FramePriority,
        context: ServiceContext?,
        in turn: inout Turn
    ) -> DispatchKey? {
        guard let connection = self.connection(toSend: request) else {
            let flight = CallFlight(end, request, identifier: identifier)
            self.begin(flight, priority, context: context, in: &turn)
            return nil
        }
        return self.send(request, end, identifier: identifier, priority: priority, on: connection, in: &turn)
    }

    /// Starts a call on the general path, which all streams take.
    ///
    /// - Parameter context: The span context of its caller, if that is needed.
    func begin(_ flight: CallFlight, _ priority: FramePriority, context: ServiceContext?, in turn: inout Turn) {
        let request = flight.originalRequest
        flight.isAccepted(at: turn.now, self.reporter.span(of: request, in: context))
        if self.life != .open {
            let error = self.life == .finishing ? CallErrors.invalidated : CallErrors.released
            return self.complete(flight, .failure(error), in: &turn)
        }
        let isDirect = self.traits.isDirect || request.options.skipsInterceptors
        if isDirect {
            do throws(SocketError) {
                try self.carrier(of: flight).check(request, of: flight, in: &turn)
            } catch {
                return self.complete(flight, .failure(error), in: &turn)
            }
        }
        // Nothing else bounds the number of calls that are in interceptors or wait between attempts.
        guard self.hot.table.hasRoom else {
            let error = CallErrors.tooManyCalls(self.hot.table.count, at: self.driver.currentEndpoint)
            return self.complete(flight, .failure(error), in: &turn)
        }
        let deadline = self.traits.deadline(of: request, now: turn.now)
        let key = self.hot.table.enter(.flight(flight), identifier: flight.identifier, deadline: deadline)
        flight.enters(key, until: self.carrier(of: flight).deadline(of: request, within: deadline, now: turn.now))
        if isDirect {
            self.attempt(Departure(flight, key, priority: priority), in: &turn)
        } else {
            let context = flight.state.span?.context ?? context ?? .topLevel
            self.interception.begin(request, key, in: context, for: self)
        }
        self.armTimer()
    }

    @inline(__always)
    private func carrier(of flight: CallFlight) -> any CallCarrier { flight.isStream ? self.streams : self.requests }

    // MARK: Attempts

    /// Begins the next attempt of a call that is in the table.
    private func attempt(_ departure: Departure, in turn: inout Turn) {
        let submission = self.hot.table.attempt(
            departure.key,
            departure.priority,
            bytes: departure.flight.request.waitingLength,
            isPatient: self.isPatient(departure.flight)
        )
        self.follow(submission, of: departure, in: &turn)
    }

    /// Repeats the previous attempt of a call, of which the server ran nothing: before calls of its priority that have
    /// never been sent if it `isReturning`, and even if no connection is being made if it `isPatient`.
    func attemptAgain(
        _ flight: CallFlight,
        _ key: DispatchKey,
        isPatient: Bool = true,
        isReturning: Bool,
        in turn: inout Turn
    ) {
        let departure = Departure(flight, key)
        let submission = self.hot.table.attemptAgain(
            key,
            departure.priority,
            bytes: flight.request.waitingLength,
            isPatient: isPatient,
            isReturning: isReturning
        )
        self.follow(submission, of: departure, in: &turn)
    }

    private func follow(_ submission: ClientCalls.Submission, of departure: Departure, in turn: inout Turn) {
        switch submission {
        case .send(_, let serial):
            self.carry(departure, serial: serial, in: &turn)
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
    private func isPatient(_ flight: CallFlight) -> Bool {
        guard self.hot.table.link != .ready, !self.driver.isClosed else { return false }
        return self.hot.table.link == .goingAway || flight.state.retries > 0
            || (flight.request.options.waitsForConnectivity ?? self.configuration.waitsForConnectivity)
    }

    /// Sends the request of an attempt.
    private func carry(_ departure: Departure, serial: UInt32, in turn: inout Turn) {
        let (flight, key) = (departure.flight, departure.key)
        flight.attemptBegins()
        do throws(SocketError) {
            let (carrier, connection) = (self.carrier(of: flight), self.links.current)
            switch try carrier.carry(departure, serial: serial, on: connection, for: self, in: &turn) {
            case .sent: self.sendingBegan(serial, on: self.hot.table.connection, in: &turn)
            case .queued: self.isQueued(key)
            case .reported: break
            case .parked: self.park(flight, key, in: &turn)
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
            self.carry(Departure(next.flight, next.key), serial: serial, in: &turn)
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
    private func park(_ flight: CallFlight, _ key: DispatchKey, in turn: inout Turn) {
        self.isQueued(key)
        guard self.hot.table.endAttempt(key) != nil else { return }
        flight.attemptIsWithdrawn()
        self.finishDrained(in: &turn)
    }

    /// Whether a call is still in the table, without an attempt.
    func isParked(_ key: DispatchKey) -> Bool { self.hot.table.phase(of: key) == .idle }

    /// Continues a parked call, whose body has been compressed. The connection may have been lost meanwhile.
    func continueParked(_ flight: CallFlight, _ key: DispatchKey, in turn: inout Turn) {
        guard !self.driver.isClosed else {
            if let idle = self.hot.table.endAttempt(key) { self.ended(idle, Driver.closedByUser, in: &turn) }
            return
        }
        let isPatient = self.hot.isReady || self.isPatient(flight)
        self.attemptAgain(flight, key, isPatient: isPatient, isReturning: false, in: &turn)
        self.armTimer()
    }

    // MARK: Progress

    /// A frame is about to be sent. Returns false if it is no longer needed.
    func willSend(type: UInt32, serial: UInt32, on id: ConnectionID, in turn: inout Turn) -> Bool {
        guard self.format.isApplicationType(type & ~self.traits.flagMask) else { return true }
        guard self.hot.table.willSend(serial: serial, on: id) else { return false }
        self.sendingBegan(serial, on: id, in: &turn)
        return true
    }

    /// Records that the first bytes of the request with this serial are being sent. A small request is sent as a whole.
    private func sendingBegan(_ serial: UInt32, on id: ConnectionID, in turn: inout Turn) {
        let now = turn.now
        let object = self.hot.table.withCall(serial: serial, on: id) { call, facts in
            facts.sent = now
            return call.object
        }
        guard let object, let object else { return }
        if case .flight(let flight) = object { flight.sendingBegan(at: now) }
        guard object.length <= Frame.unslicedLength else { return }
        self.sent(object.length, of: object, serial: serial, on: id, in: &turn)
    }

    /// Records the number of bytes of a frame's payload that have been sent.
    func sent(type: UInt32, serial: UInt32, payloadBytes: Int, on id: ConnectionID, in turn: inout Turn) {
        guard self.format.isApplicationType(type & ~self.traits.flagMask),
            let object = self.hot.table.withCall(serial: serial, on: id, { call, _ in call.object }), let object
        else { return }
        self.sent(payloadBytes, of: object, serial: serial, on: id, in: &turn)
    }

    private func sent(_ bytes: Int, of call: CallEnd.Object, serial: UInt32, on id: ConnectionID, in turn: inout Turn) {
        guard let flight = call.sent(payloadBytes: bytes, in: &turn),
            // A server may begin its answer before it has received the whole request.
            let timeout = flight.request.options.firstResponseTimeout ?? self.configuration.firstResponseTimeout,
            !flight.state.record.firstByte.hasCome, !flight.isStream
        else { return }
        let end = turn.now.advanced(clamping: TimeAmount(clamping: timeout))
        self.hot.table.expectFirstResponse(serial: serial, on: id, by: end)
        self.armTimer()
    }

    /// Whether a call waits for the answer to this serial on this connection.
    func isAwaited(_ serial: UInt32, on id: ConnectionID) -> Bool { self.hot.table.isAwaited(serial: serial, on: id) }

    /// Records that `received` of `expected` bytes of an answer's payload have arrived; nil while their number is not
    /// known.
    func isReceiving(_ serial: UInt32, _ received: Int, of expected: Int?, on id: ConnectionID, in turn: inout Turn) {
        let now = turn.now
        let object = self.hot.table.responseBegins(serial: serial, on: id) { call, facts in
            if facts.firstByte == .distantPast { facts.firstByte = now }
            return call.object
        }
        object??.isReceiving(received, of: expected, in: &turn)
    }

    // MARK: Answers on the general path

    /// Ends the attempt that an answer with status 200 is for, and completes its call, unless an interceptor waits for
    /// the answer. False if no call waits for it, which ``take(_:on:isFinal:)`` counts.
    func isEnded(by response: SocketResponse, on connection: ClientConnection, in turn: inout Turn) -> Bool {
        guard self.traits.isDirect else {
            guard let flight = self.hot.table.endAnswered(serial: response.serial, on: connection.id) else {
                return false
            }
            self.isAnswered(on: connection.id, in: &turn)
            flight.isAnswered(response.body.readableBytes, from: connection.origin, at: turn.now)
            self.ended(flight, response, in: &turn)
            return true
        }
        let type = self.traits.isObserved ? self.hot.table.typeWithoutFlight(response.serial, on: connection.id) : nil
        guard let answered = self.hot.table.takeAnswered(serial: response.serial, on: connection.id) else {
            return false
        }
        self.complete(answered, by: response, observed: type, on: connection, in: &turn)
        return true
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

    /// Asks the server of an attempt whose answer cannot be used to stop working on it.
    func abandon(_ attempt: CallAttempt, in turn: inout Turn) {
        self.carrier(of: attempt.flight).abandon(attempt, in: &turn)
    }

    /// Continues a parked call, whose answer has been decompressed.
    func answered(_ parked: CallAttempt, _ outcome: CallOutcome, in turn: inout Turn) {
        switch outcome {
        case .success(let response):
            if self.traits.isDirect { self.hot.table.remove(parked.key) }
            self.isAnswered(on: parked.connection, in: &turn)
            self.ended(parked.flight, response, in: &turn)
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
        let flight = attempt.flight
        self.noteOrigin(of: attempt)
        var error = error
        if self.isSentAgain(attempt, error, in: &turn) { return self.finishDrained(in: &turn) }
        if self.retries(attempt, error, in: &turn) { return self.finishDrained(in: &turn) }
        if flight.state.retries > 0 { error.message += "; this was attempt \(attempt.count), and it is the last" }
        if !self.traits.isDirect, let reply = self.interception.takeReply(of: attempt.key) {
            let reported = flight.withActualDelivery(error)
            // Even if the interceptors change the error, and whether or not they make the call again.
            flight.mayHaveRun(unless: error.notExecuted)
            self.carrier(of: flight).attemptFailed(flight, reported)
            self.finishDrained(in: &turn)
            return reply.resume(returning: .failure(reported))
        }
        self.hot.table.remove(attempt.key)
        self.complete(flight, .failure(error), in: &turn)
    }

    /// Handles the answer that ended an attempt: passes it to the call's interceptors, or completes the call.
    private func ended(_ flight: CallFlight, _ response: SocketResponse, in turn: inout Turn) {
        if !self.traits.isDirect, let key = flight.state.key {
            if let reply = self.interception.takeReply(of: key) {
                flight.mayHaveRun()
                self.finishDrained(in: &turn)
                return reply.resume(returning: .success(response))
            }
            // A call that skips the interceptors is still in the table.
            self.hot.table.remove(key)
        }
        self.complete(flight, .success(response), in: &turn)
    }

    /// Notes where the attempt was sent, before the table forgets it.
    private func noteOrigin(of attempt: CallAttempt) {
        if attempt.serial != nil { attempt.flight.wasSent(to: self.links.origin(of: attempt.connection)) }
    }

    private func retries(_ attempt: CallAttempt, _ error: SocketError, in turn: inout Turn) -> Bool {
        let flight = attempt.flight
        let request = flight.request
        guard self.carrier(of: flight).mayRepeat(flight),
            let policy = request.options.retryPolicy ?? self.configuration.retryPolicy, !self.driver.isClosed,
            let delay = policy.delay(
                after: error,
                of: request,
                attempts: attempt.count,
                retries: flight.state.retries,
                using: &self.generator
            )
        else { return false }
        let due = turn.now.advanced(clamping: TimeAmount(clamping: delay))
        guard due < flight.state.deadline, self.hot.retryBucket?.take() ?? true else { return false }
        flight.isRepeated(after: error, isResent: false, in: &turn)
        self.hot.table.backOff(attempt.key, until: due)
        self.reporter.retries(flight.originalRequest.type, flight.state.span, after: error, in: delay)
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
        let flight = attempt.flight
        guard flight.state.resends < Self.maximumResends, self.carrier(of: flight).mayRepeat(flight),
            attempt.connection != self.hot.connectionID || !self.hot.isReady
        else { return false }
        flight.isRepeated(after: error, isResent: true, in: &turn)
        self.reporter.isSentAgain(flight.originalRequest.type, flight.state.span, after: error)
        self.attemptAgain(flight, attempt.key, isReturning: true, in: &turn)
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
            case .retry(let key, let flight): self.attempt(Departure(flight, key), in: &turn)
            }
        }
        self.hot.table.dropStaleAlarms()
        self.hot.timerFires = .distantFuture
        self.armTimer()
    }

    /// Completes a call that timed out.
    private func expired(_ attempt: CallAttempt, in turn: inout Turn) {
        self.noteOrigin(of: attempt)
        self.abandon(attempt, in: &turn)
        if attempt.flight.isStream {
            let error = self.streams.timedOut(attempt, by: .deadline, for: self)
            return self.complete(attempt.flight, .failure(error), in: &turn)
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
        self.complete(attempt.flight, .failure(error), in: &turn)
    }

    /// Ends an attempt whose answer did not begin in time.
    private func answerDidNotBegin(_ attempt: CallAttempt, in turn: inout Turn) {
        self.abandon(attempt, in: &turn)
        self.driver.perform(.suspect(attempt.connection), in: &turn)
        let error = self.carrier(of: attempt.flight).timedOut(attempt, by: .firstResponse, for: self)
        self.failed(attempt, error, in: &turn)
    }

    // MARK: Cancelling

    func cancel(_ task: SocketTask, in turn: inout Turn) {
        // A completed task must not be written to, since other threads read it.
        guard task.state != .completed else { return }
        if let key = task.latestKey, let attempt = self.remove(key, in: &turn) {
            return self.cancelled(attempt, in: &turn)
        }
        // It was never started.
        task.complete(.failure(self.cancellation(of: task.originalRequest)), nil, in: &turn)
    }

    func cancelBeforeStart(_ call: AwaitedCall, in turn: inout Turn) {
        turn.resume(call.finish(.failure(self.cancellation(of: call.request))))
    }

    func cancelAll(in turn: inout Turn) {
        for key in self.hot.table.keys { self.cancel(key, in: &turn) }
    }

    func cancelTask(withIdentifier identifier: Int, in turn: inout Turn) {
        if let key = self.hot.table.key(withIdentifier: identifier) { self.cancel(key, in: &turn) }
    }

    func cancel(_ key: DispatchKey, in turn: inout Turn) {
        // A task that is being cancelled already has submitted that.
        guard let flight = self.hot.table.flight(for: key), flight.task?.beginCancelling() ?? true,
            let attempt = self.remove(key, in: &turn)
        else { return }
        self.cancelled(attempt, in: &turn)
    }

    private func cancelled(_ attempt: CallAttempt, in turn: inout Turn) {
        var error = self.cancellation(of: attempt.flight.originalRequest)
        if attempt.serial != nil { error.endpoint = self.links.endpoint(of: attempt.connection) }
        self.complete(attempt.flight, .failure(attempt.unanswered(error)), in: &turn)
    }

    private func cancellation(of request: SocketRequest) -> SocketError {
        CallErrors.cancelled(request.type, at: self.driver.currentEndpoint)
    }

    func reprioritize(_ task: SocketTask) {
        if let key = task.latestKey { self.hot.table.setPriority(task.priority, key) }
    }

    /// Ends a call with an error of this side, and notifies the server.
    func end(_ key: DispatchKey, _ error: SocketError, in turn: inout Turn) {
        guard let attempt = self.remove(key, in: &turn) else { return }
        var error = error
        error.endpoint = self.links.endpoint(of: attempt.connection)
        error.serial = attempt.serial
        self.complete(attempt.flight, .failure(error), in: &turn)
    }

    /// Removes a call whose attempt is abandoned; nil if it is not in the table.
    private func remove(_ key: DispatchKey, in turn: inout Turn) -> CallAttempt? {
        guard let attempt = self.hot.table.remove(key) else { return nil }
        self.noteOrigin(of: attempt)
        self.abandon(attempt, in: &turn)
        return attempt
    }

    // MARK: Interceptors

    func isIdle(_ key: DispatchKey) -> Bool? { self.hot.table.phase(of: key).map { $0 == .idle } }

    func attempt(
        _ key: DispatchKey,
        _ request: SocketRequest,
        in turn: inout Turn,
        willBegin: () -> Void
    ) throws(SocketError) {
        guard let flight = self.hot.table.flight(for: key) else { throw CallErrors.interceptedTooLate(request.type) }
        try self.carrier(of: flight).check(request, of: flight, in: &turn)
        flight.isAsked(request)
        willBegin()
        self.hot.table.resetAttempts(key)
        self.attempt(Departure(flight, key), in: &turn)
        self.armTimer()
    }

    func interceptorsReturned(_ key: DispatchKey, _ result: CallOutcome, in turn: inout Turn) {
        // Otherwise the call has completed already.
        guard let attempt = self.hot.table.remove(key) else { return }
        // They may have returned without waiting for an answer that they requested.
        self.abandon(attempt, in: &turn)
        self.complete(attempt.flight, result, in: &turn)
    }

    // MARK: Completion

    /// Completes a call that is no longer in the table, or never was.
    private func complete(_ flight: CallFlight, _ outcome: CallOutcome, in turn: inout Turn) {
        let outcome = outcome.mapError { flight.withActualDelivery($0) }
        let key = flight.state.key
        if flight.completes(at: turn.now), self.traits.isObserved {
            let (type, server) = (flight.originalRequest.type, flight.state.origin?.endpoint)
            self.reporter.completed(type, flight.state.record, at: server, span: flight.state.span, with: outcome)
        }
        if !self.traits.isDirect, let key { self.interception.completed(key, outcome) }
        if flight.isStream { self.streams.completes(flight) }
        self.finishDrained(in: &turn)
        flight.deliver(outcome, in: &turn)
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
            if attempt.flight.isStream { self.streams.abandon(attempt, in: &turn) }
            attempt.flight.attemptIsWithdrawn()
            self.attemptAgain(attempt.flight, attempt.key, isReturning: false, in: &turn)
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
            self.ended(lost, lost.unanswered(error), in: &turn)
        }
    }

    /// Ends the attempts that waited for a connection, since no attempt to connect is in progress.
    ///
    /// - Parameter isForGood: Whether none will be made automatically, so that no call need wait for one.
    func linkIsOffline(_ error: SocketError, isForGood: Bool, in turn: inout Turn) {
        var error = error
        error.delivery = .notSent
        for waiting in self.hot.table.linkIsOffline(isForGood: isForGood) { self.ended(waiting, error, in: &turn) }
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
            self.complete(removed.flight, .failure(removed.unanswered(CallErrors.released)), in: &turn)
        }
        self.turnEnded()
    }
}

extension Turn {
    /// Runs `callback` on a queue; nil for the client's.
    mutating func callBack(_ callback: SocketCallback, on queue: CallbackQueue?) {
        switch queue {
        case nil: self.callBack(callback)
        case .queue(let queue)?: queue.async { callback.run() }
        case .socketThread?: self.run(callback)
        }
    }
}
