import Foundation
import Metrics
import NIOConcurrencyHelpers
import NIOCore

/// The connection's owner on the socket thread: performs what ``ConnectionMachine`` decides.
package final class SocketCore: FrameCarrier, @unchecked Sendable {
    // Proof of Sendable: constants are Sendable themselves, or locked; variables are touched on the event loop alone, but
    // for the consumer, which is set before the core is shared.
    package let eventLoop: any EventLoop
    package let configuration: SocketConfiguration
    package let format: WireFormat
    /// The custom fields of every frame that brings none; or why this configuration cannot work.
    private let customFields: Result<[UInt8]?, SocketError>
    private let encoder: FrameEncoder
    private let thread: SocketThread
    private let dialer: Dialer
    private let submissions = SubmissionQueue()
    private let snapshot = NIOLockedValueBox(SocketState.idle)
    private let recorder = NIOLockedValueBox(HistoryRecorder())
    private var log: ConnectionLog?
    /// Nil where nobody collects.
    private let metrics: ConnectionMetrics?
    private let traffic = Traffic()

    private var machine: ConnectionMachine<SystemRandomNumberGenerator>
    /// The connection that is ready.
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var link: Link? {
        didSet { self.linkInUse = self.link.map { Unmanaged.passUnretained($0) } }
    }
    /// The same, for what is done with it for every call: counting a reference costs as much as the rest of that. Its
    /// pipeline holds the link too, and lets go of it in a later turn of the loop even if the channel closes meanwhile.
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var linkInUse: Unmanaged<Link>?
    /// The connection that is made and not ready yet.
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var greeting: Greeting?
    /// Writers who wait for room, or for a connection.
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var writers = WriterQueue()
    /// Connections that have a successor and finish what is in flight, each with the timer that ends that.
    private var draining: [ConnectionID: (link: Link, timer: Scheduled<Void>)] = [:]
    /// Whether attempts to connect begin later unless somebody asks for them.
    private var isPutOff = false
    /// Whether the floor above takes nothing for now.
    private var isReadingSuspended = false
    /// When links are gone that are closing by choice.
    private var closing: [ConnectionID: EventLoopFuture<Void>] = [:]
    /// The resolver's present search.
    private var search: Task<Void, Never>?
    /// Follows the network, from the first ``connect(attempts:)`` on.
    private var observation: Task<Void, Never>?
    /// The path that the monitor told last.
    private var path: NetworkPath?
    private var timer: Scheduled<Void>?
    private var timerDeadline: NIODeadline?
    private var consumerTimer: Scheduled<Void>?
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var consumer: (any FrameConsumer)?
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var isInvalidated = false
    /// Says how often to ping; nil where nobody pings.
    private var tuner: HeartbeatTuner?
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var batch: [Submission] = []
    /// What was submitted on the socket thread itself, and has not run yet.
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var ownSubmissions: [Submission] = []
    private var isDrainScheduled = false
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var callbacks: [SocketCallback] = []
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var continuations: [UnsafeContinuation<Void, Never>] = []
    /// Set while the frames of a read are handed over, after which what was submitted meanwhile runs.
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var isReading = false
    /// Set while an entry point runs, which will flush when it ends.
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var isInTurn = false
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    package private(set) var now = NIODeadline.now()

    /// - Parameter refusal: Why the floor above cannot work with this configuration: what every attempt to connect and every
    ///   request fails with.
    package init(configuration: SocketConfiguration, refusal: SocketError? = nil) {
        self.configuration = configuration
        let format = configuration.wireFormat
        self.format = format
        self.customFields = Result { () throws(SocketError) in
            if let refusal { throw refusal }
            return try format.customFields(configuration.header, in: .request)
        }
        self.encoder = FrameEncoder(direction: .request, format: format, customFields: nil)
        self.thread = SocketThread(lent: configuration.eventLoopGroup)
        self.eventLoop = self.thread.eventLoop
        self.dialer = Dialer(
            eventLoop: self.eventLoop,
            configuration: configuration,
            customFields: self.customFields,
            traffic: self.traffic
        )
        self.log = configuration.logger.map { ConnectionLog($0) }
        let metricsFactory = configuration.metricsFactory ?? MetricsSystem.factory
        self.metrics = metricsFactory is NOOPMetricsHandler ? nil : ConnectionMetrics(factory: metricsFactory)
        self.machine = ConnectionMachine(
            servers: configuration.servers,
            policy: configuration.serverPolicy,
            settings: .init(
                backoff: configuration.backoff,
                racing: configuration.racing,
                gateTimeout: configuration.gate?.timeout,
                resolverTimeout: configuration.resolver.map { _ in configuration.connectTimeout },
                background: configuration.backgroundPolicy,
                proxy: configuration.proxy?.endpoint
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
        if self.eventLoop.inEventLoop, !self.isInvalidated {
            self.ownSubmissions.append(submission)
            // A turn, and a read, run what was submitted in it when they end.
            if !self.isInTurn, !self.isReading { self.scheduleDrain() }
            return true
        }
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

    private func scheduleDrain() {
        guard !self.isDrainScheduled else { return }
        self.isDrainScheduled = true
        self.eventLoop.execute {
            self.isDrainScheduled = false
            self.drainSubmissions()
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

    /// Reads the certificates and keys of TLS anew, on the calling thread; from any thread.
    ///
    /// - Throws: `invalidArgument` if they cannot be read, or if there is no TLS.
    package func reloadTLS() throws(SocketError) {
        guard let tls = self.dialer.tls else {
            throw SocketError(
                .invalidArgument,
                message: "the configuration has no TLS to reload (SocketConfiguration.tls)"
            )
        }
        try tls.reload()
    }

    // MARK: What the user asks, on the socket thread

    package func connect(attempts: Int? = nil) {
        guard !self.isInvalidated else { return }
        self.observeNetwork()
        self.tell { $0.connect(attempts: attempts, now: $1) }
    }

    package func disconnect() {
        self.tell { $0.disconnect(now: $1) }
    }

    package func switchServer(to endpoint: Endpoint?) {
        guard !self.isInvalidated else { return }
        self.tell { $0.switchServer(to: endpoint, now: $1) }
    }

    package func serverFails(_ endpoint: Endpoint, wrong: Int, calls: Int) {
        self.tell { machine, now in
            [.report(.serverFails(endpoint, wrong: wrong, calls: calls))] + machine.leaveFailingServer(now: now)
        }
    }

    package var maximumPayloadLength: Int { self.configuration.maximumPayloadLength }
    package var callbackQueue: CallbackQueue { self.configuration.callbackQueue }
    package var isNetworkReachable: Bool { self.machine.isReachable }

    package func replaceServers(with endpoints: [Endpoint]) {
        self.tell { $0.replaceServers(with: endpoints, now: $1) }
    }

    package func networkChanged(isReachable: Bool, label: String?) {
        self.nameNetwork(label)
        self.tell { $0.networkChanged(isReachable: isReachable, now: $1) }
    }

    private func nameNetwork(_ label: String?) {
        guard let label else { return }
        self.tuner?.networkChanged(to: label)
        self.updateHeartbeatInterval()
    }

    private func observeNetwork() {
        guard self.observation == nil, let paths = self.configuration.networkMonitor?.paths() else { return }
        self.observation = Task {
            for await path in paths { self.submit(.closure { self.networkPathIs(path) }) }
        }
    }

    private func networkPathIs(_ path: NetworkPath) {
        guard path != self.path, !self.isInvalidated else { return }
        let isFirst = self.path == nil
        self.path = path
        guard isFirst else { return self.networkChanged(isReachable: path.isReachable, label: path.name) }
        self.nameNetwork(path.name)
        self.tell { $0.networkIsKnown(isReachable: path.isReachable, now: $1) }
    }

    /// The connection that is ready, if it is still this one.
    private func readyLink(_ id: ConnectionID) -> Link? { self.link?.id == id ? self.link : nil }

    private func updateHeartbeatInterval() {
        if let interval = self.tuner?.interval { self.link?.setHeartbeatInterval(interval) }
    }

    package func suspect(_ id: ConnectionID) {
        self.readyLink(id)?.probe(isUrgent: false)
    }

    /// Whether to take no bytes from the network, on any connection, until this is called again. What has been read is still
    /// delivered, and so is what the kernel holds when the peer ends the connection. A connection that is being made is not
    /// held up before it is ready. A connection that closes is read to its end.
    package func setReading(isSuspended: Bool) {
        guard isSuspended != self.isReadingSuspended else { return }
        self.isReadingSuspended = isSuspended
        let links = self.draining.values.map { $0.link } + (self.link.map { [$0] } ?? [])
        for link in links {
            if isSuspended { link.suspendReading() } else { link.resumeReading() }
        }
    }

    package func didEnterBackground() {
        self.tell { $0.didEnterBackground(now: $1) }
    }

    package func willEnterForeground() {
        self.tell { $0.willEnterForeground(now: $1) }
    }

    package func pullForward() {
        self.isPutOff = false
        self.tell { $0.pullForward(now: $1) }
    }

    package func leave(_ id: ConnectionID, _ departure: ServerDeparture) {
        self.tell { $0.goAway(id, departure, isAnnounced: false, now: $1) }
    }

    package func send(_ frame: Frame, _ priority: FramePriority) throws(SocketError) -> Bool {
        self.eventLoop.assertInEventLoop()
        try self.check(frame)
        guard let link = self.link else { throw self.notConnected() }
        return try self.send(frame, priority, on: link)
    }

    package var isDelivering: Bool {
        self.eventLoop.inEventLoop && self.isReading && self.ownSubmissions.isEmpty
    }

    package func canSendAtOnce(length: Int) -> Bool {
        guard length <= self.configuration.maximumPayloadLength else { return false }
        return self.linkInUse?._withUnsafeGuaranteedRef { $0.canSendAtOnce(length: length) } ?? false
    }

    package func sendAtOnce(type: UInt32, serial: UInt32, _ payload: ByteBuffer) {
        self.linkInUse?._withUnsafeGuaranteedRef { $0.sendAtOnce(type: type, serial: serial, payload) }
    }

    package func send(_ frame: Frame, _ priority: FramePriority, on id: ConnectionID) {
        guard let link = self.readyLink(id) ?? self.draining[id]?.link else { return }
        // If it cannot leave the connection does not move, and the server will notice that.
        _ = try? self.send(frame, priority, on: link)
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

    private func send(_ frame: Frame, _ priority: FramePriority, on link: Link) throws(SocketError) -> Bool {
        switch link.send(frame, priority) {
        case .leaving:
            return true
        case .queued:
            return false
        case .refused:
            throw self.queueFull(frame, link.endpoint, self.configuration.maximumQueuedBytes, "maximumQueuedBytes")
        }
    }

    private func queueFull(_ frame: Frame, _ endpoint: Endpoint?, _ bound: Int, _ name: String) -> SocketError {
        let cause = endpoint.map { "\($0) does not read as fast as frames are sent" } ?? "there is no connection yet"
        return SocketError(
            .queueFull,
            message: "\(cause): no more than \(bound) bytes may wait (\(name)); send less at once",
            endpoint: endpoint,
            serial: frame.serial
        )
    }

    // MARK: Writers who can wait

    /// Sends the frame as soon as ``WritePolicy`` lets it, and completes `write` then.
    func perform(_ write: PendingWrite) {
        if self.isPutOff { self.pullForward() }
        do throws(SocketError) {
            try self.check(write.frame)
            if let link = self.link {
                try self.perform(write, on: link)
            } else {
                guard self.configuration.writePolicy.whenNotReady == .wait, !self.isInvalidated, !self.isClosed else {
                    throw self.notConnected()
                }
                try self.wait(write)
            }
        } catch {
            write.complete(.failure(error))
        }
    }

    private func perform(_ write: PendingWrite, on link: Link) throws(SocketError) {
        let policy = self.configuration.writePolicy
        if self.writers.isEmpty, link.hasRoom(for: self.encoder.encodedLength(of: write.frame)) {
            _ = try self.send(write.frame, write.priority, on: link)
            return write.complete(.success(()))
        }
        guard policy.whenFull == .wait else {
            throw self.queueFull(write.frame, link.endpoint, policy.highWaterMark, "WritePolicy.highWaterMark")
        }
        try self.wait(write)
    }

    private func wait(_ write: PendingWrite) throws(SocketError) {
        let limit = self.configuration.maximumQueuedBytes
        guard self.writers.append(write, length: self.encoder.encodedLength(of: write.frame), limit: limit) else {
            throw self.queueFull(write.frame, self.link?.endpoint, limit, "maximumQueuedBytes")
        }
    }

    /// The writer waits no longer.
    func cancel(_ write: PendingWrite) {
        self.writers.cancel(write)
    }

    /// Lets those in who find room now. True if there was one.
    private func admitWriters(to link: Link) -> Bool {
        var isAdmitted = false
        while let write = self.writers.popFirst(where: { link.hasRoom(for: $0.length) }) {
            isAdmitted = true
            write.complete(
                Result { () throws(SocketError) in _ = try self.send(write.frame, write.priority, on: link) }
            )
        }
        return isAdmitted
    }

    package var isClosed: Bool {
        if case .closed = self.machine.state { true } else { false }
    }

    package func customFields(_ header: [String: [UInt8]]) throws(SocketError) -> [UInt8]? {
        let base = try self.customFields.get()
        return try self.format.customFields(header, over: base, in: .request)
    }

    package var closedByUser: SocketError { Machine.closedByUser(nil) }

    package func notConnected() -> SocketError {
        if case .held(let reason) = self.machine.phase, reason.code == .networkUnreachable { return reason }
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
        // Timers and the observation of the network keep this object until here: were they to hold it weakly, every
        // reference to it would be counted in a place of its own, at some cost for every call.
        self.disconnect()
        self.search?.cancel()
        self.observation?.cancel()
        self.consumerTimer?.cancel()
        self.consumer?.socketWasInvalidated()
        self.consumer = nil
        let idle = self.eventLoop.makePromise(of: Void.self)
        self.submissions.close { idle.succeed() }
        self.dialer.whenFinished().and(self.drained()).and(idle.futureResult).whenComplete { [thread] _ in thread.end()
        }
    }

    /// Completes when all that was asked to leave is gone: the connection is closed, or there was none.
    package func drained() -> EventLoopFuture<Void> {
        .andAllComplete(Array(self.closing.values), on: self.eventLoop)
    }

    // MARK: Turns of the loop

    package func turn(_ body: () -> Void) {
        self.eventLoop.assertInEventLoop()
        guard !self.isInTurn else { return body() }
        self.isInTurn = true
        self.now = .now()
        body()
        self.runOwnSubmissions()
        self.consumer?.turnEnds()
        self.link?.flush()
        self.isInTurn = false
        // What they submitted themselves has to wait: a callback that calls again and again must not stop the loop.
        if !self.ownSubmissions.isEmpty { self.scheduleDrain() }
        self.measure()
        self.flushCallbacks()
    }

    /// Once for all that a turn did, so that counting costs next to nothing.
    private func measure() {
        if let metrics = self.metrics {
            metrics.take(self.traffic)
            metrics.queued(bytes: self.link?.queuedBytes ?? 0)
        }
        self.consumer?.turnEnded()
    }

    private func drainSubmissions() {
        self.turn { self.runSubmissions() }
    }

    /// Runs what other threads have submitted so far.
    private func runSubmissions() {
        var batch: [Submission] = []
        swap(&batch, &self.batch)
        self.submissions.take(into: &batch)
        self.run(&batch)
        swap(&batch, &self.batch)
    }

    /// Runs what was submitted on this thread so far, after what other threads had submitted before that.
    private func runOwnSubmissions() {
        guard !self.ownSubmissions.isEmpty else { return }
        var batch: [Submission] = []
        swap(&batch, &self.ownSubmissions)
        self.runSubmissions()
        self.run(&batch)
        // The storage is used again, if nothing has come meanwhile.
        if self.ownSubmissions.isEmpty { swap(&batch, &self.ownSubmissions) }
    }

    private func run(_ batch: inout [Submission]) {
        for submission in batch {
            switch submission {
            case .work(let work, let operation): work.performOnSocketThread(operation)
            case .closure(let closure): closure()
            }
            self.linkInUse?._withUnsafeGuaranteedRef { $0.flushIfFull() }
        }
        batch.removeAll(keepingCapacity: true)
    }

    package func callBack(_ callback: SocketCallback) {
        switch self.configuration.callbackQueue.target {
        case .socketThread: callback.run()
        case .queue: self.callbacks.append(callback)
        }
    }

    package func resume(_ continuation: UnsafeContinuation<Void, Never>) {
        self.continuations.append(continuation)
    }

    private func flushCallbacks() {
        if !self.continuations.isEmpty {
            for continuation in self.continuations { continuation.resume() }
            self.continuations.removeAll(keepingCapacity: true)
        }
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
            self.eventLoop.scheduleTask(deadline: deadline) {
                self.timer = nil
                self.timerDeadline = nil
                self.tell { $0.timerFired(now: $1) }
            }
        }
    }

    package func setConsumerTimer(_ deadline: NIODeadline) {
        self.consumerTimer?.cancel()
        self.consumerTimer = self.eventLoop.assumeIsolated().scheduleTask(deadline: deadline) {
            self.turn { self.consumer?.timerFired() }
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
        case .leave(let id):
            self.consumer?.connectionIsLeaving(id)
        case .putOff:
            self.isPutOff = true
            // They leave by the connection that is there; but they show that it is in use.
            if !self.writers.isEmpty { self.pullForward() }
            self.consumer?.attemptIsPutOff()
        case .drain(let id):
            self.consumer?.connectionDrains(id)
        case .lost(let id, let error):
            self.consumer?.connectionWasLost(id, error)
            if self.link == nil, self.configuration.writePolicy.whenNotReady == .fail { self.writers.failAll(error) }
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
            self.report(event)
        }
    }

    private func report(_ event: SocketEvent) {
        switch event {
        // Nobody reconnects any more, so nobody need wait for that.
        case .closed: self.writers.failAll(self.closedByUser)
        case .gaveUp(let error): self.writers.failAll(error)
        default: break
        }
        let now = NIODeadline.now()
        self.recorder.withLockedValue { $0.happened(event, now: now, date: Date()) }
        self.log?.happened(event)
        self.metrics?.happened(event, now: now)
        self.consumer?.happened(event)
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
        self.dialer.dial(id, endpoint, owner: self) { result in
            switch result {
            case .success(let link):
                self.greeting = Greeting(link: link)
                self.tell { $0.connected(link.id, now: $1) }
            case .failure(let error):
                self.tell { $0.connectFailed(id, error, now: $1) }
            }
        }
    }

    private func close(_ id: ConnectionID) {
        if self.dialer.abandon(id) { return }
        if let greeting = self.greeting, greeting.link.id == id {
            self.greeting = nil
            greeting.end(self.reasonToEnd(greeting))
            greeting.link.close()
        } else if let link = self.link, link.id == id {
            self.link = nil
            self.close(link)
        } else if let draining = self.draining.removeValue(forKey: id) {
            draining.timer.cancel()
            self.close(draining.link)
        }
    }

    /// The error that a gate is told whose connection is closed before the gate has returned.
    private func reasonToEnd(_ greeting: Greeting) -> SocketError {
        let endpoint = greeting.link.endpoint
        // The machine has noted why it closes a connection whose time is up.
        if let last = self.machine.lastError, last.code == .handshakeTimeout, last.endpoint == endpoint { return last }
        return SocketError(
            .cancelled,
            message: "the handshake with \(endpoint) is over: the connection was closed",
            endpoint: endpoint
        )
    }

    private func close(_ link: Link) {
        guard let gone = link.close() else { return }
        let id = link.id
        self.closing[id] = gone
        gone.assumeIsolated().whenComplete { _ in self.closing[id] = nil }
    }

    // MARK: The gate

    private func shakeHands(_ id: ConnectionID, _ endpoint: Endpoint, attempt: Int) {
        guard let gate = self.configuration.gate else { return }
        self.greeting?.run(
            gate,
            attempt: attempt,
            lastSerial: self.format.layout.requestSerials.upperBound,
            transmit: { [weak self] frame, completion in
                let isAlive = self.map { core in core.submit(.closure { core.sendGreeting(frame, id, completion) }) }
                if isAlive != true { completion(.failure(Greeting.isOver(endpoint))) }
            },
            completion: { [weak self] refusal in
                guard let self else { return }
                self.submit(.closure { self.gateReturned(id, refusal) })
            }
        )
    }

    private func gateReturned(_ id: ConnectionID, _ refusal: Greeting.Refusal?) {
        self.tell { machine, now in
            guard let refusal else { return machine.handshakeSucceeded(id, now: now) }
            return machine.handshakeFailed(id, refusal.error, refusal.remedy, now: now)
        }
    }

    private func sendGreeting(
        _ frame: Frame,
        _ id: ConnectionID,
        _ completion: (Result<Void, SocketError>) -> Void
    ) {
        guard let link = self.greeting?.link, link.id == id else {
            return completion(.failure(Greeting.isOver(link?.endpoint ?? Endpoint(host: "", port: 0))))
        }
        do throws(SocketError) {
            try self.check(frame)
            if frame.type == FrameType.hello, self.greeting?.awaitsHello == true {
                // Its answer may be right before frames that have them.
                link.expectFlags(FrameType.metadataFlag | FrameType.compressionFlag)
                self.machine.awaitsHello = true
            }
            _ = try self.send(frame, .default, on: link)
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
        self.isPutOff = false
        if let predecessor = self.link { self.limitDraining(predecessor) }
        self.link = greeting.link
        let agreement = greeting.agreement
        let unread = greeting.end(Greeting.isOver(endpoint))
        greeting.link.expectFlags(agreement?.flags ?? 0)
        greeting.link.start(heartbeatInterval: self.tuner?.interval)
        if self.isReadingSuspended { greeting.link.suspendReading() }
        self.consumer?.connectionIsReady(id, endpoint, agreement)
        _ = self.admitWriters(to: greeting.link)
        for frame in unread { self.consumer?.received(frame, on: id) }
    }

    /// Lets the connection that has just got a successor finish what is in flight, for a limited time.
    private func limitDraining(_ link: Link) {
        let id = link.id
        let timeout = TimeAmount(clamping: self.configuration.drainTimeout)
        let timer = self.eventLoop.assumeIsolated().scheduleTask(in: max(.zero, timeout)) { () -> Void in
            self.drainTimedOut(id)
        }
        self.draining[id] = (link, timer)
    }

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

extension SocketCore: Link.Owner {
    func linkWillRead(_ link: Link) -> (any FrameConsumer)? {
        // One time for all that this read brings.
        if !self.isInTurn { self.now = .now() }
        self.isReading = true
        return self.greeting?.link === link ? nil : self.consumer
    }

    func linkDidRead(_ link: Link, isOpen: Bool) {
        self.isReading = false
        // Else the end of all reading is to come.
        if !isOpen { self.linkFinishedReading(link) }
    }

    func linkReceived(_ frame: Frame, on link: Link) {
        if link !== self.link, let greeting = self.greeting, greeting.link === link {
            self.receivedGreeting(frame, greeting)
        } else {
            self.consumer?.received(frame, on: link.id)
        }
    }

    func linkReceived(hello frame: Frame, on link: Link) -> Bool {
        guard let greeting = self.greeting, greeting.link === link, greeting.awaitsHello else { return false }
        self.machine.awaitsHello = false
        greeting.receiveHello(frame, nil)
        return true
    }

    private func receivedGreeting(_ frame: Frame, _ greeting: Greeting) {
        do throws(SocketError) {
            try greeting.receive(frame)
        } catch {
            self.tell { $0.handshakeFailed(greeting.link.id, error, .tryAnotherServer, now: $1) }
        }
    }

    func linkReceived(corrupt frame: Frame, _ mismatch: FrameDecoder.ChecksumMismatch, on link: Link) {
        // During the handshake it is as if it had not come: the gate's time limit deals with that. Of hello nothing else can
        // come, and what a later answer would mean is not known.
        if let greeting = self.greeting, link === greeting.link {
            if frame.type == FrameType.hello { greeting.receiveHello(frame, mismatch) }
            return
        }
        self.consumer?.received(corrupt: frame, mismatch, on: link.id)
    }

    func linkFinishedReading(_ link: Link) {
        // Calls made by callbacks of this very read leave with its flush. Other threads that submit something wake this one.
        guard self.ownSubmissions.isEmpty else { return self.turn {} }
        self.consumer?.turnEnds()
        // A link that drains has brought answers, by which calls were made on its successor. One's own flush comes next.
        if link !== self.link { self.link?.flush() }
        self.flushCallbacks()
    }

    func linkTurn(_ body: () -> Void) { self.turn(body) }

    func linkFrameWillLeave(type: UInt32, serial: UInt32, on link: Link) -> Bool {
        self.consumer?.frameWillLeave(type: type, serial: serial, on: link.id) ?? true
    }

    func linkReceivedGoAway(_ frame: Frame, on link: Link) {
        guard let departure = self.consumer?.receivedGoAway(frame, on: link.id) else { return }
        self.tell { $0.goAway(link.id, departure, isAnnounced: true, now: $1) }
    }

    func linkIsReceiving(_ arriving: FrameDecoder.Arriving, on link: Link) {
        // A handshake is its own business.
        guard link !== self.greeting?.link else { return }
        self.consumer?.isReceiving(arriving)
    }

    func linkProgressed(type: UInt32, serial: UInt32, payloadBytes: Int) {
        self.consumer?.frameProgressed(type: type, serial: serial, payloadBytes: payloadBytes)
    }

    func linkFlushed(_ link: Link) -> Bool {
        if !self.isInTurn {
            self.measure()
            // What left after the end of a read has been told of since.
            if !self.isReading { self.flushCallbacks() }
        }
        guard !self.writers.isEmpty, link === self.link, link.isBelowLowWaterMark else { return false }
        return self.admitWriters(to: link)
    }

    func linkIsAlive(_ link: Link) { self.machine.connectionIsAlive(link.id) }

    func linkHeartbeat(_ outcome: HeartbeatMonitor.Outcome, on link: Link) {
        if let time = outcome.roundTripTime { self.metrics?.heartbeatWasAnswered(after: time) }
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
