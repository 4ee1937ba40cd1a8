import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// The connection's owner on the socket thread: performs what ``ConnectionMachine`` decides.
///
/// - Note: Proof of `@unchecked Sendable`: `eventLoop`, `configuration`, `thread`, `queue` and `snapshot` never change
///   or are locked; every other property is touched on the event loop alone, which each entry point asserts.
package final class SocketCore: @unchecked Sendable {
    // Proof of Sendable: the first five never change, or are locked; all others are touched on the event loop alone,
    // but for the consumer, which is set before the core is shared.
    package let eventLoop: any EventLoop
    package let configuration: SocketConfiguration
    package let format: WireFormat
    /// The custom fields of every frame that brings none.
    private let customFields: Result<[UInt8]?, SocketError>
    private let thread: SocketThread
    private let submissions = SubmissionQueue()
    private let snapshot = NIOLockedValueBox(SocketState.idle)

    private var machine: ConnectionMachine<SystemRandomNumberGenerator>
    private var link: Link?
    /// A link that is closing by choice.
    private weak var closing: Link?
    /// The channels of the attempts in progress.
    private var attempts: [AttemptID: [any Channel]] = [:]
    /// Attempts whose future is still to come, abandoned ones included.
    private var unfinishedAttempts = 0
    private var unfinishedAttemptsPromise: EventLoopPromise<Void>?
    private var timer: Scheduled<Void>?
    private var consumer: (any FrameConsumer)?
    private var isInvalidated = false
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
            backoff: configuration.backoff,
            generator: SystemRandomNumberGenerator()
        )
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

    /// Sets who is told of frames and events. Before the first submission.
    package func setConsumer(_ consumer: any FrameConsumer) {
        self.consumer = consumer
    }

    // MARK: What the user asks, on the socket thread

    package func connect() {
        guard !self.isInvalidated else { return }
        self.perform(self.machine.connect(now: .now()))
    }

    package func disconnect() {
        self.perform(self.machine.disconnect(now: .now()))
    }

    package func switchServer(to endpoint: Endpoint?) {
        guard !self.isInvalidated else { return }
        self.perform(self.machine.switchServer(to: endpoint, now: .now()))
    }

    /// A call found no connection and would like one soon.
    package func pullForward() {
        self.perform(self.machine.pullForward(now: .now()))
    }

    /// Sends the frame with this turn's flush, or queues it while the peer does not read.
    ///
    /// - Returns: Whether it is leaving already.
    package func send(_ frame: Frame) throws(SocketError) -> Bool {
        self.eventLoop.assertInEventLoop()
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
        guard let link = self.link else { throw self.notConnected() }
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
        case .connecting(let endpoint, _), .ready(let endpoint): endpoint
        case .idle, .waiting, .closed: nil
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

    private func perform(_ actions: [ConnectionMachine<SystemRandomNumberGenerator>.Action]) {
        self.turn {
            for action in actions {
                let state = self.machine.state
                self.snapshot.withLockedValue { $0 = state }
                self.perform(action)
            }
        }
    }

    private func perform(_ action: ConnectionMachine<SystemRandomNumberGenerator>.Action) {
        switch action {
        case .open(let attempt, let endpoint):
            self.open(attempt, endpoint)
        case .close(let attempt):
            self.close(attempt)
        case .setTimer(let deadline):
            self.timer?.cancel()
            self.timer = self.eventLoop.scheduleTask(deadline: deadline) { [weak self] in
                guard let self else { return }
                self.timer = nil
                self.perform(self.machine.timerFired(now: .now()))
            }
        case .cancelTimer:
            self.timer?.cancel()
            self.timer = nil
        case .report(let event):
            self.consumer?.happened(event)
        case .ready(let endpoint):
            self.link?.start()
            self.consumer?.connectionIsReady(endpoint)
        case .lost(let error):
            self.consumer?.connectionWasLost(error)
        case .offline(let error):
            self.consumer?.connectionIsOffline(error)
        }
    }

    private func open(_ attempt: AttemptID, _ endpoint: Endpoint) {
        self.consumer?.connectionIsBeingMade()
        guard (1...65_535).contains(endpoint.port), !endpoint.host.isEmpty else {
            return self.refuse(
                attempt,
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
            return self.refuse(attempt, error)
        }
        let configuration = self.configuration
        self.attempts[attempt] = []
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
                    guard let self, self.attempts[attempt] != nil else { throw CancellationError() }
                    self.attempts[attempt]?.append(channel)
                    try channel.pipeline.syncOperations.addHandler(
                        Link(
                            attempt: attempt,
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
                self.attempts[attempt] = nil
                self.unfinishedAttempts -= 1
                switch result.flatMap({ channel in
                    Result { try channel.pipeline.syncOperations.handler(type: Link.self) }
                }) {
                case .success(let link): self.opened(link)
                case .failure(let error): self.failed(attempt, endpoint, error)
                }
                if self.unfinishedAttempts == 0 { self.unfinishedAttemptsPromise?.succeed() }
            }
    }

    /// An attempt that need not be made to know that it fails.
    private func refuse(_ attempt: AttemptID, _ error: SocketError) {
        // Not at once: the machine is still performing the actions that led here.
        self.eventLoop.execute { self.perform(self.machine.connectFailed(attempt, error, now: .now())) }
    }

    private func opened(_ link: Link) {
        let actions = self.machine.connected(link.attempt, now: .now())
        if case .close = actions.first {
            link.close()
        } else {
            self.link = link
        }
        self.perform(actions)
    }

    private func failed(_ attempt: AttemptID, _ endpoint: Endpoint, _ error: any Error) {
        let error = SocketError.connecting(
            to: endpoint,
            failedWith: error,
            timeout: self.configuration.connectTimeout
        )
        self.perform(self.machine.connectFailed(attempt, error, now: .now()))
    }

    private func close(_ attempt: AttemptID) {
        if let channels = self.attempts.removeValue(forKey: attempt) {
            for channel in channels { channel.close(promise: nil) }
        } else if let link = self.link, link.attempt == attempt {
            self.link = nil
            self.closing = link
            link.close()
        }
    }
}

extension SocketCore: Link.Owner {
    func linkReceived(_ frame: Frame, on link: Link) {
        self.consumer?.received(frame)
    }

    func linkReceived(corrupt frame: Frame, _ mismatch: FrameDecoder.ChecksumMismatch, on link: Link) {
        self.consumer?.received(corrupt: frame, mismatch)
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

    func linkEnded(_ link: Link, _ error: SocketError) {
        guard self.link === link else { return }
        self.link = nil
        self.perform(self.machine.connectionLost(link.attempt, error, now: .now()))
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
