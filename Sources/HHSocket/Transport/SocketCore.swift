import Foundation
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// The connection's owner on the socket thread: performs what ``ConnectionMachine`` decides.
package final class SocketCore: @unchecked Sendable {
    // Proof of Sendable: constants are Sendable themselves, or locked; variables are touched on the event loop alone, but
    // for the consumer, which is set before the core is shared.
    package let eventLoop: any EventLoop
    package let configuration: SocketConfiguration
    package let format: WireFormat
    /// The custom fields of every frame that brings none.
    private let customFields: Result<[UInt8]?, SocketError>
    private let thread: SocketThread
    private let submissions = SubmissionQueue()
    private let snapshot = NIOLockedValueBox(SocketState.idle)
    private let recorder = NIOLockedValueBox(HistoryRecorder())

    private var machine: ConnectionMachine<SystemRandomNumberGenerator>
    /// The connection that is ready.
    private var link: Link?
    /// The connection that is made and not ready yet.
    private var greeting: Greeting?
    /// Connections that have a successor and finish what is in flight, each with the timer that ends that.
    private var draining: [ConnectionID: (link: Link, timer: Scheduled<Void>)] = [:]
    /// A link that is closing by choice.
    private weak var closing: Link?
    /// The channels of the attempts in progress.
    private var attempts: [ConnectionID: [any Channel]] = [:]
    /// The resolver's present search.
    private var search: Task<Void, Never>?
    /// Attempts whose future is still to come, abandoned ones included.
    private var unfinishedAttempts = 0
    private var unfinishedAttemptsPromise: EventLoopPromise<Void>?
    private var timer: Scheduled<Void>?
    private var timerDeadline: NIODeadline?
    private var consumer: (any FrameConsumer)?
    private var isInvalidated = false
    /// Says how often to ping; nil where nobody pings.
    private var tuner: HeartbeatTuner?
    private var batch: [Submission] = []
    private var callbacks: [SocketCallback] = []
    /// Set while an entry point runs, which will flush when it ends.
    private var isInTurn = false
    /// When the present turn began: the time for all that it does.
    package private(set) var now = NIODeadline.now()

    package init(configuration: SocketConfiguration) {
        self.configuration = configuration
        let format = configuration.wireFormat
        self.format = format
        self.customFields = Result { () throws(SocketError) in
            try format.customFields(configuration.header, in: .request)
        }
        self.thread = SocketThread(lent: configuration.eventLoopGroup)
        self.eventLoop = self.thread.eventLoop
        self.machine = ConnectionMachine(
            servers: configuration.servers,
            policy: configuration.serverPolicy,
            settings: .init(
                backoff: configuration.backoff,
                racing: configuration.racing,
                gateTimeout: configuration.gate?.timeout,
                resolverTimeout: configuration.resolver.map { _ in configuration.connectTimeout },
                background: configuration.backgroundPolicy
            ),
            generator: SystemRandomNumberGenerator()
        )
        self.tuner = configuration.heartbeat.map {
            HeartbeatTuner($0.interval, storage: configuration.heartbeatStorage, isApplicationActive: true)
        }
    }

    /// Has `submission` run on the socket thread, after all that was submitted before. From any thread.
    ///
    /// - Returns: False if the socket was invalidated and nothing runs any more.
    @discardableResult
    package func submit(_ submission: Submission) -> Bool {
        switch self.submissions.append(submission) {
        case .waiting:
            return true
        case .mustWake:
            self.eventLoop.execute { self.drainSubmissions() }
            self.submissions.woke()
            return true
        case .refused:
            return false
        }
    }

    /// What the socket is doing; from any thread.
    package var state: SocketState { self.snapshot.withLockedValue { $0 } }

    /// What happened lately, and why; from any thread.
    package var history: ConnectionHistory { self.recorder.withLockedValue { $0.history } }

    /// Sets who is told of frames and events. Before the first submission.
    package func setConsumer(_ consumer: any FrameConsumer) {
        self.consumer = consumer
    }

    // MARK: What the user asks, on the socket thread

    package func connect(attempts: Int? = nil) {
        guard !self.isInvalidated else { return }
        self.tell { $0.connect(attempts: attempts, now: $1) }
    }

    package func disconnect() {
        self.tell { $0.disconnect(now: $1) }
    }

    package func switchServer(to endpoint: Endpoint?) {
        guard !self.isInvalidated else { return }
        self.tell { $0.switchServer(to: endpoint, now: $1) }
    }

    package func replaceServers(with endpoints: [Endpoint]) {
        self.tell { $0.replaceServers(with: endpoints, now: $1) }
    }

    package func networkChanged(isReachable: Bool, label: String?) {
        if let label {
            self.tuner?.networkChanged(to: label)
            self.updateHeartbeatInterval()
        }
        self.tell { $0.networkChanged(isReachable: isReachable, now: $1) }
    }

    /// The connection that is ready, if it is still this one.
    private func readyLink(_ id: ConnectionID) -> Link? { self.link?.id == id ? self.link : nil }

    private func updateHeartbeatInterval() {
        if let interval = self.tuner?.interval { self.link?.setHeartbeatInterval(interval) }
    }

    /// A call was not answered in time: finds out whether the connection still lives. One dead call does not kill it.
    package func suspect(_ id: ConnectionID) {
        self.readyLink(id)?.probe(isUrgent: false)
    }

    package func didEnterBackground() {
        self.tell { $0.didEnterBackground(now: $1) }
    }

    package func willEnterForeground() {
        self.tell { $0.willEnterForeground(now: $1) }
    }

    /// A call found no connection and would like one soon.
    package func pullForward() {
        self.tell { $0.pullForward(now: $1) }
    }

    /// Sends the frame with this turn's flush, or queues it while the peer does not read.
    ///
    /// - Returns: Whether it is leaving already.
    package func send(_ frame: Frame) throws(SocketError) -> Bool {
        self.eventLoop.assertInEventLoop()
        try self.check(frame)
        guard let link = self.link else { throw self.notConnected() }
        return try self.send(frame, on: link)
    }

    /// The same by the connection that another frame left by, which may be draining. Without that connection nothing
    /// happens.
    package func send(_ frame: Frame, on id: ConnectionID) {
        guard let link = self.readyLink(id) ?? self.draining[id]?.link else { return }
        // If it cannot leave the connection does not move, and the server will notice that.
        _ = try? self.send(frame, on: link)
        if link !== self.link { link.flush() }
    }

    private func check(_ frame: Frame) throws(SocketError) {
        guard frame.payload.readableBytes <= self.configuration.maximumPayloadLength else {
            throw SocketError(
                .frameTooLarge,
                message: """
                    a payload of \(frame.payload.readableBytes) bytes is over the limit of \
                    \(self.configuration.maximumPayloadLength); raise maximumPayloadLength on both sides or send less
                    """,
                serial: frame.serial
            )
        }
        if let fields = frame.customFields, fields.count != self.format.customFieldLength(in: .request) {
            throw SocketError(
                .invalidArgument,
                message: """
                    the custom fields of a request in the wire format \(self.format) have \
                    \(self.format.customFieldLength(in: .request)) bytes; \(fields.count) were given
                    """,
                serial: frame.serial
            )
        }
    }

    private func send(_ frame: Frame, on link: Link) throws(SocketError) -> Bool {
        switch link.send(frame) {
        case .leaving:
            return true
        case .queued:
            return false
        case .refused:
            throw SocketError(
                .queueFull,
                message: """
                    \(link.endpoint) does not read: over \(self.configuration.maximumQueuedBytes) bytes are waiting \
                    (maximumQueuedBytes); send less at once
                    """,
                endpoint: link.endpoint,
                serial: frame.serial
            )
        }
    }

    /// The custom fields of a request with these values over the configuration's, for a frame.
    ///
    /// - Throws: `invalidArgument` if the format has no such fields, or if the configuration's are wrong.
    package func customFields(_ header: [String: [UInt8]]) throws(SocketError) -> [UInt8]? {
        let base = try self.customFields.get()
        return try self.format.customFields(header, over: base, in: .request)
    }

    /// Why nothing can be sent now.
    package func notConnected() -> SocketError {
        let last = self.machine.lastError
        let place = (last?.endpoint ?? self.configuration.servers.first).map { " to \($0)" } ?? ""
        let why = last.map { "; the last failure: \($0.message)" } ?? "; call connect() first"
        return SocketError(
            .notConnected,
            message: "there is no connection\(place)\(why)",
            underlying: last,
            endpoint: last?.endpoint ?? self.configuration.servers.first
        )
    }

    /// The server connected to, or being connected to.
    package var currentEndpoint: Endpoint? {
        switch self.machine.state {
        case .connecting(let endpoint, _), .handshaking(let endpoint), .ready(let endpoint): endpoint
        case .idle, .resolving, .waiting, .closed: nil
        }
    }

    package var lastError: SocketError? { self.machine.lastError }

    /// Ends everything for good, and the thread with it. From any thread, any number of times.
    package func invalidate() {
        self.submit(.closure { self.invalidateOnThread() })
    }

    private func invalidateOnThread() {
        guard !self.isInvalidated else { return }
        self.isInvalidated = true
        self.disconnect()
        self.search?.cancel()
        self.consumer?.socketWasInvalidated()
        self.consumer = nil
        // A thread that ends while an attempt is still resolving a name could never be told the result.
        let promise = self.eventLoop.makePromise(of: Void.self)
        self.unfinishedAttemptsPromise = promise
        if self.unfinishedAttempts == 0 { promise.succeed() }
        let idle = self.eventLoop.makePromise(of: Void.self)
        self.submissions.close { idle.succeed() }
        promise.futureResult.and(self.drained()).and(idle.futureResult).whenComplete { [thread] _ in thread.end() }
    }

    /// Completes when all that was asked to leave is gone: the connection is closed, or there was none.
    package func drained() -> EventLoopFuture<Void> {
        self.closing?.close() ?? self.eventLoop.makeSucceededVoidFuture()
    }

    // MARK: Turns of the loop

    /// Runs `body` as one turn: what it sends leaves together, what it calls back is handed over together.
    package func turn(_ body: () -> Void) {
        self.eventLoop.assertInEventLoop()
        guard !self.isInTurn else { return body() }
        self.isInTurn = true
        self.now = .now()
        body()
        self.link?.flush()
        self.isInTurn = false
        self.flushCallbacks()
    }

    private func drainSubmissions() {
        self.turn {
            var batch: [Submission] = []
            swap(&batch, &self.batch)
            self.submissions.take(into: &batch)
            for submission in batch {
                switch submission {
                case .work(let work, let operation): work.performOnSocketThread(operation)
                case .closure(let closure): closure()
                }
            }
            batch.removeAll(keepingCapacity: true)
            swap(&batch, &self.batch)
        }
    }

    /// Hands `callback` to the user's queue with the others of this turn, or runs it here where the user asked for that.
    package func callBack(_ callback: SocketCallback) {
        switch self.configuration.callbackQueue.target {
        case .socketThread: callback.run()
        case .queue: self.callbacks.append(callback)
        }
    }

    private func flushCallbacks() {
        guard !self.callbacks.isEmpty, case .queue(let queue) = self.configuration.callbackQueue.target else { return }
        let callbacks = self.callbacks
        self.callbacks = []
        queue.async {
            for callback in callbacks { callback.run() }
        }
    }

    // MARK: Performing

    private typealias Machine = ConnectionMachine<SystemRandomNumberGenerator>

    private func tell(_ news: (inout Machine, NIODeadline) -> [Machine.Action]) {
        self.turn {
            let actions = news(&self.machine, .now())
            let state = self.machine.state
            self.snapshot.withLockedValue { $0 = state }
            for action in actions { self.perform(action) }
            self.armTimer()
        }
    }

    /// One timer for all that the machine waits for.
    private func armTimer() {
        let deadline = self.machine.nextDeadline
        guard deadline != self.timerDeadline else { return }
        self.timer?.cancel()
        self.timerDeadline = deadline
        self.timer = deadline.map { deadline in
            self.eventLoop.scheduleTask(deadline: deadline) { [weak self] in
                guard let self else { return }
                self.timer = nil
                self.timerDeadline = nil
                self.tell { $0.timerFired(now: $1) }
            }
        }
    }

    private func perform(_ action: Machine.Action) {
        switch action {
        case .resolve(let id):
            self.resolve(id)
        case .open(let id, let endpoint):
            self.open(id, endpoint)
        case .shakeHands(let id, let endpoint, let attempt):
            self.shakeHands(id, endpoint, attempt: attempt)
        case .close(let id):
            self.close(id)
        case .ready(let id, let endpoint):
            self.becomeReady(id, endpoint)
        case .drain(let id):
            self.consumer?.connectionDrains(id)
        case .lost(let id, let error):
            self.consumer?.connectionWasLost(id, error)
        case .beingMade:
            self.consumer?.connectionIsBeingMade()
        case .offline(let error):
            self.consumer?.connectionIsOffline(error)
        case .probe(let id):
            self.readyLink(id)?.probe(isUrgent: true)
        case .pauseHeartbeat(let id):
            self.readyLink(id)?.pauseHeartbeat()
        case .resumeHeartbeat(let id):
            self.readyLink(id)?.resumeHeartbeat()
        case .applicationIsActive(let isActive):
            self.tuner?.applicationChanged(isActive: isActive)
            self.updateHeartbeatInterval()
        case .report(let event):
            self.recorder.withLockedValue { $0.happened(event, now: .now(), date: Date()) }
            self.consumer?.happened(event)
        }
    }

    // MARK: Attempts

    private func resolve(_ id: ConnectionID) {
        guard let resolver = self.configuration.resolver else { return }
        self.search?.cancel()
        self.search = Task { [weak self] in
            let result: Result<[Endpoint], SocketError>
            do {
                result = .success(try await resolver.resolve())
            } catch {
                result = .failure(
                    error as? SocketError
                        ?? SocketError(.hostNotFound, message: "the resolver failed: \(error)", underlying: error)
                )
            }
            guard let self else { return }
            self.submit(.closure { self.tell { $0.resolved(id, result, now: $1) } })
        }
    }

    private func open(_ id: ConnectionID, _ endpoint: Endpoint) {
        guard (1...65_535).contains(endpoint.port), !endpoint.host.isEmpty else {
            return self.refuse(
                id,
                SocketError(
                    .invalidArgument,
                    message: "cannot connect to \(endpoint): a host and a port from 1 to 65535 are needed",
                    endpoint: endpoint
                )
            )
        }
        let customFields: [UInt8]?
        switch self.customFields {
        case .success(let fields):
            customFields = fields
        case .failure(var error):
            error.endpoint = endpoint
            return self.refuse(id, error)
        }
        let configuration = self.configuration
        self.attempts[id] = []
        self.unfinishedAttempts += 1
        ClientBootstrap(group: self.eventLoop)
            .connectTimeout(max(.milliseconds(1), TimeAmount(configuration.connectTimeout)))
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelOption(.writeBufferWaterMark, value: .init(low: 64 << 10, high: 256 << 10))
            .channelOption(
                .recvAllocator,
                value: AdaptiveRecvByteBufferAllocator(minimum: 2 << 10, initial: 16 << 10, maximum: 256 << 10)
            )
            .channelInitializer { [weak self] channel in
                channel.eventLoop.makeCompletedFuture {
                    guard let self, self.attempts[id] != nil else { throw CancellationError() }
                    self.attempts[id]?.append(channel)
                    try channel.pipeline.syncOperations.addHandler(
                        Link(
                            id: id,
                            endpoint: endpoint,
                            configuration: configuration,
                            customFields: customFields,
                            owner: self
                        )
                    )
                }
            }
            .connect(host: endpoint.host, port: endpoint.port)
            .whenComplete { result in
                let isWanted = self.attempts.removeValue(forKey: id) != nil
                self.unfinishedAttempts -= 1
                switch result.flatMap({ channel in
                    Result { try channel.pipeline.syncOperations.handler(type: Link.self) }
                }) {
                case .success(let link) where isWanted: self.opened(link)
                case .success(let link): link.close()
                case .failure(let error): self.failed(id, endpoint, error)
                }
                if self.unfinishedAttempts == 0 { self.unfinishedAttemptsPromise?.succeed() }
            }
    }

    /// An attempt that need not be made to know that it fails.
    private func refuse(_ id: ConnectionID, _ error: SocketError) {
        // Not at once: the machine's actions are still being performed.
        self.eventLoop.execute { self.tell { $0.connectFailed(id, error, now: $1) } }
    }

    private func opened(_ link: Link) {
        self.greeting = Greeting(link: link)
        self.tell { $0.connected(link.id, now: $1) }
    }

    private func failed(_ id: ConnectionID, _ endpoint: Endpoint, _ error: any Error) {
        let error = SocketError.connecting(
            to: endpoint,
            failedWith: error,
            timeout: self.configuration.connectTimeout
        )
        self.tell { $0.connectFailed(id, error, now: $1) }
    }

    private func close(_ id: ConnectionID) {
        if let channels = self.attempts.removeValue(forKey: id) {
            for channel in channels { channel.close(promise: nil) }
        } else if let greeting = self.greeting, greeting.link.id == id {
            self.greeting = nil
            greeting.end(
                SocketError(
                    .cancelled,
                    message: "the handshake with \(greeting.link.endpoint) is over: the connection was closed",
                    endpoint: greeting.link.endpoint
                )
            )
            greeting.link.close()
        } else if let link = self.link, link.id == id {
            self.link = nil
            self.closing = link
            link.close()
        } else if let draining = self.draining.removeValue(forKey: id) {
            draining.timer.cancel()
            self.closing = draining.link
            draining.link.close()
        }
    }

    // MARK: The gate

    private func shakeHands(_ id: ConnectionID, _ endpoint: Endpoint, attempt: Int) {
        guard let gate = self.configuration.gate, let link = self.greeting?.link else { return }
        let handshake = Handshake(
            endpoint: endpoint,
            attempt: attempt,
            lastSerial: self.format.layout.requestSerials.upperBound
        ) { [weak self] frame, completion in
            let isAlive = self.map { core in core.submit(.closure { core.sendGreeting(frame, id, completion) }) }
            if isAlive != true { completion(.failure(Self.handshakeIsOver(endpoint))) }
        }
        let task = Task { [weak self] in
            let outcome: (error: SocketError, remedy: HandshakeRefusal.Remedy)?
            do {
                try await gate.run(handshake)
                outcome = nil
            } catch {
                outcome = Self.refusal(error, endpoint)
            }
            guard let self else { return }
            self.submit(
                .closure {
                    self.tell { machine, now in
                        guard let outcome else { return machine.handshakeSucceeded(id, now: now) }
                        return machine.handshakeFailed(id, outcome.error, outcome.remedy, now: now)
                    }
                }
            )
        }
        self.greeting = Greeting(link: link, handshake: handshake, task: task)
    }

    private static func refusal(_ error: any Error, _ endpoint: Endpoint) -> (SocketError, HandshakeRefusal.Remedy) {
        let refusal = error as? HandshakeRefusal
        let reason = refusal?.reason ?? "\(error)"
        let refused = SocketError(
            .handshakeRefused,
            message: "cannot use the connection to \(endpoint): the handshake failed: \(reason)",
            underlying: refusal?.underlying ?? error,
            endpoint: endpoint
        )
        return (refused, refusal?.remedy ?? .tryAnotherServer)
    }

    private static func handshakeIsOver(_ endpoint: Endpoint) -> SocketError {
        SocketError(.notConnected, message: "the handshake with \(endpoint) is over", endpoint: endpoint)
    }

    private func sendGreeting(
        _ frame: Frame,
        _ id: ConnectionID,
        _ completion: (Result<Void, SocketError>) -> Void
    ) {
        guard let link = self.greeting?.link, link.id == id else {
            return completion(.failure(Self.handshakeIsOver(link?.endpoint ?? Endpoint(host: "", port: 0))))
        }
        do throws(SocketError) {
            try self.check(frame)
            _ = try self.send(frame, on: link)
            link.flush()
            completion(.success(()))
        } catch {
            completion(.failure(error))
        }
    }

    // MARK: Ready connections

    private func becomeReady(_ id: ConnectionID, _ endpoint: Endpoint) {
        guard let greeting = self.greeting, greeting.link.id == id else { return }
        self.greeting = nil
        if let predecessor = self.link { self.limitDraining(predecessor) }
        self.link = greeting.link
        let unread = greeting.end(Self.handshakeIsOver(endpoint))
        greeting.link.start(heartbeatInterval: self.tuner?.interval)
        self.consumer?.connectionIsReady(id, endpoint)
        for frame in unread { self.consumer?.received(frame, on: id) }
    }

    /// Lets the connection that has just got a successor finish what is in flight, for a limited time.
    private func limitDraining(_ link: Link) {
        let id = link.id
        let timeout = TimeAmount(self.configuration.drainTimeout)
        let timer = self.eventLoop.assumeIsolated().scheduleTask(in: max(.zero, timeout)) { [weak self] () -> Void in
            self?.drainTimedOut(id)
        }
        self.draining[id] = (link, timer)
    }

    /// Nothing is in flight any more on a connection that drains.
    package func finishDraining(_ id: ConnectionID) {
        guard self.draining[id] != nil else { return }
        self.close(id)
        self.machine.drained(id)
    }

    private func drainTimedOut(_ id: ConnectionID) {
        guard let link = self.draining[id]?.link else { return }
        let error = SocketError(
            .connectionLost,
            message: """
                the connection to \(link.endpoint) was left for another server, and was not answered within \
                \(self.configuration.drainTimeout) (drainTimeout)
                """,
            endpoint: link.endpoint
        )
        self.turn {
            self.consumer?.connectionWasLost(id, error)
            self.finishDraining(id)
        }
    }
}

/// A connection that is made and not ready yet.
private struct Greeting {
    var link: Link
    var handshake: Handshake?
    var task: Task<Void, Never>?

    /// - Returns: The frames that the gate did not take.
    @discardableResult
    func end(_ error: SocketError) -> [Frame] {
        self.task?.cancel()
        return self.handshake?.end(error) ?? []
    }
}

extension SocketCore: Link.Owner {
    func linkReceived(_ frame: Frame, on link: Link) {
        if link !== self.link, let greeting = self.greeting, greeting.link === link {
            self.receivedGreeting(frame, greeting)
        } else {
            self.consumer?.received(frame, on: link.id)
        }
    }

    private func receivedGreeting(_ frame: Frame, _ greeting: Greeting) {
        guard let handshake = greeting.handshake, !handshake.receive(frame) else { return }
        let error = SocketError(
            .handshakeRefused,
            message: """
                cannot use the connection to \(greeting.link.endpoint): over \(Handshake.maximumWaitingFrames) frames \
                came during the handshake
                """,
            endpoint: greeting.link.endpoint
        )
        self.tell { $0.handshakeFailed(greeting.link.id, error, .tryAnotherServer, now: $1) }
    }

    func linkReceived(corrupt frame: Frame, _ mismatch: FrameDecoder.ChecksumMismatch, on link: Link) {
        // During the handshake it is as if it had not come: the gate's time limit deals with that.
        guard link !== self.greeting?.link else { return }
        self.consumer?.received(corrupt: frame, mismatch, on: link.id)
    }

    func linkFinishedReading(_ link: Link) {
        // Calls made by callbacks of this very read leave with its flush.
        self.drainSubmissions()
    }

    func linkFrameWillLeave(type: UInt32, serial: UInt32) -> Bool {
        self.consumer?.frameWillLeave(type: type, serial: serial) ?? true
    }

    func linkProgressed(type: UInt32, serial: UInt32, payloadBytes: Int) {
        self.consumer?.frameProgressed(type: type, serial: serial, payloadBytes: payloadBytes)
    }

    func linkHeartbeat(_ outcome: HeartbeatMonitor.Outcome, on link: Link) {
        if outcome.isAnswered { self.machine.connectionIsAlive(link.id) }
        guard outcome.testedInterval != nil else { return }
        self.tuner?.observe(outcome)
        self.updateHeartbeatInterval()
    }

    func linkEnded(_ link: Link, _ error: SocketError) {
        if self.link === link {
            self.link = nil
        } else if let greeting = self.greeting, greeting.link === link {
            self.greeting = nil
            greeting.end(error)
        } else if let draining = self.draining.removeValue(forKey: link.id) {
            draining.timer.cancel()
        } else {
            return
        }
        self.tell { $0.connectionLost(link.id, error, now: $1) }
    }
}

/// Something to tell the user, without a closure where there is an object that knows what.
package enum SocketCallback: Sendable {
    case work(any CallbackWork)
    case closure(@Sendable () -> Void)

    func run() {
        switch self {
        case .work(let work): work.callBack()
        case .closure(let closure): closure()
        }
    }
}

/// An object that runs its own callback.
package protocol CallbackWork: AnyObject, Sendable {
    func callBack()
}
