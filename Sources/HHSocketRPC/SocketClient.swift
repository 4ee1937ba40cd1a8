// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocket
import NIOCore
import Tracing

/// A client that makes calls over one long-lived connection, as `URLSession` does over many short ones.
///
/// ```swift
/// let client = SocketClient(configuration: .init(servers: [.init(host: "im1.example.com", port: 7000)]))
/// client.connect()
/// let response = try await client.data(for: SocketRequest(type: 101, body: data))
/// ```
///
/// All methods may be called from any thread and return at once. When the last reference is released, calls in flight
/// complete with `cancelled`, the connection is closed and its thread ends.
public final class SocketClient: ConnectionControl {
    public typealias Configuration = ClientConfiguration

    let host: ClientHost
    /// The engine of ``host``, which each call uses.
    let engine: CallEngine
    let driver: Driver
    private let audience = DelegateReference()
    private let lastIdentifier = ManagedAtomic(0)

    public init(configuration: ClientConfiguration) {
        var socketConfiguration = configuration.socket
        var configuration = configuration
        if configuration.streams != nil, configuration.hello == nil { configuration.hello = HelloPolicy() }
        let refusal =
            configuration.hello?.refusal(in: socketConfiguration.wireFormat)
            ?? configuration.streams.flatMap { _ in SocketError.refusalOfStreams(in: socketConfiguration.wireFormat) }
        if let hello = configuration.hello, refusal == nil {
            socketConfiguration.gate = hello.gate(
                before: socketConfiguration.gate,
                maximumPayloadLength: socketConfiguration.maximumPayloadLength,
                streams: configuration.streams
            )
        }
        let rules = FrameRules(socketConfiguration, refusal: refusal)
        let connector = FrameConnector(rules)
        self.driver = Driver(configuration: socketConfiguration, maker: connector, refusal: rules.refusal)
        let host = ClientHost(
            configuration: configuration,
            rules: rules,
            driver: self.driver,
            loop: self.driver.loop,
            audience: self.audience
        )
        connector.attach(to: self.driver, host)
        self.driver.setHost(host)
        self.host = host
        self.engine = host.engine
        self.audience.setClient(self)
    }

    deinit {
        self.driver.invalidate()
    }

    public var _driver: ControlledDriver { ControlledDriver(self.driver) }

    /// The time limit of calls that state none.
    package var configuredTimeout: Duration { self.host.configuration.timeout }

    /// Runs `body` where completion handlers run, after this function has returned.
    package func callBack(_ body: @escaping @Sendable () -> Void) {
        self.driver.loop.callbackQueue.run(on: self.driver.loop, body)
    }

    // MARK: Calls

    /// Makes a task for `request`, suspended.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - callbackQueue: The queue on which `completionHandler` runs and ``SocketTask/progress`` changes; nil, the
    ///     default, for the configuration's.
    ///   - completionHandler: Called exactly once after ``SocketTask/resume()`` or ``SocketTask/cancel()``, with the
    ///     answer if its status is 200 and with an error otherwise.
    public func dataTask(
        with request: consuming SocketRequest,
        on callbackQueue: CallbackQueue? = nil,
        completionHandler: consuming @escaping @Sendable (Result<SocketResponse, SocketError>) -> Void
    ) -> SocketTask {
        self.makeTask(request, completion: .handler(consume completionHandler), on: callbackQueue)
    }

    /// Makes a task for `request`, suspended, without a completion handler.
    public func dataTask(with request: consuming SocketRequest) -> SocketTask {
        self.makeTask(request, completion: .nobody)
    }

    /// Makes a call and waits for its answer. Cancelling the Swift task cancels the call.
    ///
    /// Continues where it is called, on any actor or executor: after two thread hops, or none on ``executor``.
    ///
    /// - Throws: ``/HHSocket/SocketError`` if the call failed on this side, or was answered with a status other than
    ///   200.
    public nonisolated(nonsending) func data(
        for request: consuming SocketRequest
    ) async throws(SocketError) -> SocketResponse {
        if self.engine.traits.isPlain, self.engine.loop.isCurrent, let result = await self.awaitHere(request) {
            return try result.get()
        }
        let context = self.engine.traits.needsContext ? ServiceContext.current ?? .topLevel : nil
        let call = AwaitedCall(request, self.engine, context: context)
        await call.run(on: self.engine.loop)
        return try call.takeResult().get()
    }

    /// Makes a call on this thread and waits for its answer; nil if it cannot be sent at once.
    private nonisolated(nonsending) func awaitHere(_ request: SocketRequest) async -> CallOutcome? {
        let (engine, identifier) = (self.engine, self.nextIdentifier)
        return await withTaskCancellationHandler {
            await withUnsafeContinuation { continuation in
                guard var turn = engine.turnOfHandlers(toSend: request) else {
                    return continuation.resume(returning: nil)
                }
                engine.send(request, .waiter(continuation), identifier: identifier, in: &turn)
                turn.giveBack()
            }
        } onCancel: {
            engine.loop.submit { engine.cancelTask(withIdentifier: identifier, in: &$0) }
        }
    }

    /// Makes a task for `request`, resumes it, and returns its identifier, for ``cancelTask(withIdentifier:)``.
    ///
    /// The cheapest way to call from a handler that runs on the socket thread, where the call has no task.
    @discardableResult
    public func dispatch(
        _ request: consuming SocketRequest,
        completionHandler: consuming (@Sendable (Result<SocketResponse, SocketError>) -> Void)? = nil
    ) -> Int {
        let identifier = self.nextIdentifier
        // A handler that runs elsewhere is called by its task.
        if self.engine.traits.callsBackHere, var turn = self.engine.turnOfHandlers(toSend: request) {
            // A switch, since `if let` would count a reference.
            let end: CallEnd
            switch consume completionHandler {
            case .some(let handler): end = .handler(handler)
            case .none: end = .nobody
            }
            self.engine.send(consume request, end, identifier: identifier, in: &turn)
            turn.giveBack()
        } else {
            SocketTask(
                identifier: identifier,
                request: consume request,
                engine: self.engine,
                completion: (consume completionHandler).map { .handler($0) } ?? .nobody,
                isDispatched: true
            ).resume()
        }
        return identifier
    }

    /// Cancels every call that was resumed before and has not completed.
    public func cancelAllTasks() {
        self.driver.submit { [engine] in engine.cancelAll(in: &$0) }
    }

    /// Cancels one call that ``dispatch(_:completionHandler:)`` made. Does nothing if it has completed. (A task is
    /// cancelled by its own ``SocketTask/cancel()``.)
    public func cancelTask(withIdentifier identifier: Int) {
        self.driver.submit { [engine] in engine.cancelTask(withIdentifier: identifier, in: &$0) }
    }

    var nextIdentifier: Int { self.lastIdentifier.wrappingIncrementThenLoad(ordering: .relaxed) }

    private func makeTask(
        _ request: consuming SocketRequest,
        completion: consuming SocketTask.Completion,
        on callbackQueue: CallbackQueue? = nil
    ) -> SocketTask {
        SocketTask(
            identifier: self.nextIdentifier,
            request: request,
            engine: self.engine,
            completion: completion,
            callbackQueue: callbackQueue
        )
    }

    // MARK: The connection

    /// Waits until the connection is ready. Connects if ``connect()`` has not been called, or after ``disconnect()``.
    ///
    /// - Throws: ``/HHSocket/SocketError`` with the reason if the client gives up, after ``connect(attempts:)`` or
    ///   `Backoff.maximumRounds`; `cancelled` when the Swift task is cancelled, by ``disconnect()``, and when the
    ///   client is released.
    public nonisolated(nonsending) func connected() async throws(SocketError) {
        // Subscribed first, so that no event is missed.
        let events = self.events
        switch self.state {
        case .ready: return
        case .idle, .closed: self.connect()
        case .connecting, .handshaking, .resolving, .waiting: break
        }
        for await event in events {
            switch event {
            case .connected, .switched: return
            case .gaveUp(let error): throw error
            case .closed: throw SocketError(.cancelled, message: "the connection was closed by disconnect()")
            default: break
            }
        }
        let what = Task.isCancelled ? "the task that waits for the connection was cancelled" : "the client was released"
        throw SocketError(.cancelled, message: what)
    }

    /// Disconnects like ``disconnect()``, and returns when the connection is closed, after a second at most.
    public func close() async {
        await withCheckedContinuation { continuation in
            let isAlive = self.driver.submit { [driver] turn in
                driver.disconnect(in: &turn)
                driver.drained().whenComplete { _ in continuation.resume() }
            }
            if !isAlive { continuation.resume() }
        }
    }

    /// Closes the connection permanently, once the calls that were resumed before have completed. Returns at once.
    ///
    /// Calls that are resumed later complete with `cancelled`, including those of interceptors. ``events`` ends when
    /// everything is closed. A call that is not answered ends by its own timeout.
    public func finishTasksAndInvalidate() {
        self.driver.submit { [engine, driver] _ in engine.finishTasks { driver.invalidate() } }
    }

    /// The events of the connection from now on. Each access makes a separate stream, which keeps the latest 256 events
    /// for its reader and ends with the client.
    public var events: AsyncStream<SocketEvent> { self.host.events.makeStream() }

    /// The delegate, notified of events and pushes that belong to no call. Held weakly.
    public var delegate: (any SocketClientDelegate)? {
        get { self.audience.delegate }
        set { self.audience.delegate = newValue }
    }

    /// The counts so far.
    public var statistics: ClientStatistics { self.host.reporter.statistics }
}
