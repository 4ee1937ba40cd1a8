// SPDX-License-Identifier: Apache-2.0
public import HHSocketLink
import Logging
import Metrics
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
public import ServiceLifecycle

/// A server: it accepts connections, hands requests to a ``Router`` and pushes to its clients.
///
/// ```swift
/// var router = Router()
/// router.handle(101) { request, context in ByteBuffer(string: "hello") }
/// let server = SocketServer(configuration: .init(port: 7000), router: router)
/// try await ServiceGroup(
///     services: [server],
///     gracefulShutdownSignals: [.sigterm, .sigint],
///     logger: logger
/// ).run()
/// ```
///
/// Without a service group, use ``start()`` and ``shutdown(gracePeriod:)``.
///
/// Heartbeats are answered; a wrong checksum is answered with status 302 and an unknown type with 401, and the
/// connection stays open. The server stops reading from a client that does not read its answers until it does.
/// ``ServerLimits`` describes the other limits on clients.
public final class SocketServer: Service {
    public typealias Configuration = ServerConfiguration

    private struct Running {
        var listeners: [BoundListener]
        var parts: ServerParts
        var settings: [ListenerSettings]
        var loops: [ServerLoop]
        var ownGroup: MultiThreadedEventLoopGroup?
        var metrics: ServerMetrics?
        var sweepClock: SweepClock
        var outage: DescriptorOutage

        func kill() {
            for loop in self.loops { loop.kill() }
        }
    }

    private struct Stopping {
        var running: Running
        var finished: Task<Void, Never>
    }

    private enum State {
        case idle
        /// Starting, with the callers that wait for the start to succeed or fail, so that they can shut the server
        /// down.
        case starting([CheckedContinuation<Void, Never>])
        case running(Running)
        case stopping(Stopping)
        case stopped(ServerStatistics)
    }

    /// The configuration that the server was made with.
    package let configuration: ServerConfiguration
    private let router: Router
    private let state = NIOLockedValueBox(State.idle)
    private let routes = NIOLockedValueBox<[OpeningRoute]>([])
    /// The first error of a listener that the system has closed.
    private let lostListeners = AsyncStream<SocketError>.makeStream(bufferingPolicy: .bufferingOldest(1))
    private let tls: ServerTLSReload

    /// - Parameters:
    ///   - configuration: Where to listen, and the limits.
    ///   - router: Which code answers which request.
    public init(configuration: ServerConfiguration = ServerConfiguration(), router: Router) {
        self.configuration = configuration
        self.router = router
        self.tls = ServerTLSReload(configuration)
    }

    deinit {
        // It can no longer be shut down by anyone else.
        guard case .running(let running) = self.state.withLockedValue({ $0 }) else { return }
        for channel in running.listeners.flatMap(\.channels) { channel.close(promise: nil) }
        let drained = running.loops.map { $0.drain(self.configuration.shutdown) }
        running.kill()
        running.metrics?.end()
        running.sweepClock.end()
        running.parts.books.ledger.end()
        running.outage.end()
        self.tls.end()
        running.parts.books.peerLog.end()
        guard let ownGroup = running.ownGroup else { return }
        // Only then: a job that is submitted to an event loop after its end is lost.
        EventLoopFuture.andAllComplete(drained, on: ownGroup.any()).whenComplete { _ in
            ownGroup.shutdownGracefully { _ in }
        }
    }

    // MARK: WebSockets

    /// Serves messages at a path, on every listener that has WebSockets (``ServerListener/webSocket``). Call it before
    /// ``start()``.
    ///
    /// - Parameters:
    ///   - path: The path, compared exactly and without the query; nil: all paths that no other route has.
    ///   - options: Who may connect, and the limits on messages.
    ///   - handler: Called for each connection, in its own task. The connection is closed when it returns, with 1000,
    ///     or with 1011 when it throws; its task is cancelled when the connection ends.
    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument`.
    public func webSocket(
        _ path: String?,
        options: WebSocketRouteOptions = WebSocketRouteOptions(),
        _ handler: @escaping @Sendable (WebSocketConnection) async throws -> Void
    ) throws(SocketError) {
        try self.add(options.route(path, WebSocketRoute(.task(handler), options)))
    }

    /// Serves messages at a path as ``webSocket(_:options:_:)`` does, with a handler that is called for each message on
    /// the connection's thread, which it must not block: the fastest way. Messages that it sends leave with the flush
    /// of the read that brought the message.
    ///
    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument`.
    public func webSocket(
        _ path: String?,
        options: WebSocketRouteOptions = WebSocketRouteOptions(),
        onMessage handler: @escaping @Sendable (WebSocketMessage, WebSocketConnection) -> Void
    ) throws(SocketError) {
        try self.add(options.route(path, WebSocketRoute(.synchronous(handler), options)))
    }

    private func add(_ route: OpeningRoute) throws(SocketError) {
        self.routes.withLockedValue { routes in
            // A route without a path is asked last.
            let index = route.rules.path == nil ? routes.count : routes.firstIndex { $0.rules.path == nil }
            routes.insert(route, at: index ?? routes.count)
        }
    }

    // MARK: Life

    /// Serves until the task's graceful shutdown, for example by SIGTERM in a `ServiceGroup`, and then shuts down as
    /// ``ServerConfiguration/shutdown`` describes. When the task is cancelled everything is closed immediately.
    ///
    /// - Throws: The errors of ``start()``. Also, after it has shut down, ``/HHSocket/SocketError`` with code
    ///   `bindFailed` if the system has closed a listener: the server should then be started again.
    public func run() async throws {
        try await self.start()
        let lost = await withTaskGroup(of: SocketError?.self) { group in
            group.addTask {
                // Returns at cancellation too.
                try? await gracefulShutdown()
                return nil
            }
            group.addTask { await self.lostListeners.stream.first { _ in true } }
            defer { group.cancelAll() }
            return await group.next() ?? nil
        }
        await self.shutdown(gracePeriod: Task.isCancelled ? .zero : nil)
        if let lost { throw lost }
    }

    /// Logs that a listener was lost, unless we have closed it.
    private func watch(_ listener: BoundListener) {
        let isLost: @Sendable () -> Void = { [weak self, configuration] in
            guard let self, case .running = self.state.withLockedValue({ $0 }) else { return }
            let error = SocketError(
                .bindFailed,
                message: "the system has closed the listener at \(listener.address); start the server again",
                endpoint: listener.address
            )
            configuration.logger.critical(
                "a listener was lost",
                metadata: ["listener": "\(listener.address)", "error": "\(error.message)"]
            )
            self.lostListeners.continuation.yield(error)
        }
        for channel in listener.channels { channel.closeFuture.whenComplete { _ in isLost() } }
    }

    /// Listens; returns once connections are accepted.
    ///
    /// - Throws: ``/HHSocket/SocketError`` that names host and port: `bindFailed` when the address is taken, not
    ///   allowed or not this machine's, `hostNotFound` when the host name has no address, `invalidArgument` when a
    ///   setting cannot work or the server has been started before. The server does not listen then.
    public func start() async throws(SocketError) {
        try self.configuration.check(for: self.router)
        let mayStart = self.state.withLockedValue { state in
            guard case .idle = state else { return false }
            state = .starting([])
            return true
        }
        guard mayStart else {
            throw .invalid(
                "a server can be started once; make another one",
                endpoint: self.configuration.listeners.first?.endpoint
            )
        }
        do throws(SocketError) {
            let running = try await self.begin()
            self.endStarting(.running(running))
            for listener in running.listeners { self.watch(listener) }
        } catch {
            self.endStarting(.idle)
            throw error
        }
    }

    private func endStarting(_ next: State) {
        let waiting: [CheckedContinuation<Void, Never>] = self.state.withLockedValue { state in
            defer { state = next }
            guard case .starting(let waiting) = state else { return [] }
            return waiting
        }
        for continuation in waiting { continuation.resume() }
    }

    /// Whether the server is starting: neither idle nor running.
    var isStarting: Bool {
        if case .starting = self.state.withLockedValue({ $0 }) { true } else { false }
    }

    /// Returns as soon as the server is not starting.
    private func waitWhileStarting() async {
        await withCheckedContinuation { continuation in
            let waits = self.state.withLockedValue { state in
                guard case .starting(let waiting) = state else { return false }
                state = .starting(waiting + [continuation])
                return true
            }
            if !waits { continuation.resume() }
        }
    }

    private func begin() async throws(SocketError) -> Running {
        try self.tls.begin()
        let ownGroup: MultiThreadedEventLoopGroup?
        let group: any EventLoopGroup
        if let given = self.configuration.eventLoopGroup {
            (ownGroup, group) = (nil, given)
        } else {
            let made = MultiThreadedEventLoopGroup(
                numberOfThreads: self.configuration.eventLoops ?? System.coreCount
            )
            (ownGroup, group) = (made, made)
        }
        let limits = self.configuration.limits
        let loops = group.makeIterator().enumerated().map { index, eventLoop in
            ServerLoop(
                index: index,
                eventLoop: eventLoop,
                logger: self.configuration.logger,
                maximumHandshakes: limits.maximumHandshakes,
                time: self.configuration.time
            )
        }
        let descriptors = DescriptorLimit.raise(wanted: limits.maximumConnections ?? 0)
        let quota = ConnectionQuota.Limits(limits, descriptors: descriptors, loops: loops.count)
        let parts = ServerParts(self.configuration, router: self.router, quota: quota, loopCount: loops.count)
        self.warn(of: quota, descriptors)
        let outage = DescriptorOutage(parts.books, DescriptorOutage.Descriptors(limit: descriptors ?? 0)) {
            loops[0].counters.count(.acceptFailures)
        }
        let shortage = ConnectionShortage(loops, minimumSilence: limits.minimumSilence, time: self.configuration.time)
        var bound: [BoundListener] = []
        var settings: [ListenerSettings] = []
        do throws(SocketError) {
            for (index, listener) in self.configuration.listeners.enumerated() {
                let made = try ListenerSettings(index: index, listener, self.configuration)
                settings.append(made)
                let acceptor = Acceptor(
                    parts: parts,
                    loops: loops,
                    shortage: shortage,
                    outage: outage,
                    socketCount: self.configuration.listeners.reduce(0) { $0 + $1.listeningSockets },
                    settings: made,
                    tls: self.tls.services[index],
                    webSocket: try listener.webSocket?.settings(
                        for: listener.wireFormat,
                        self.routes.withLockedValue { $0 }
                    )
                )
                bound.append(try await acceptor.listen(listener, on: group))
            }
        } catch {
            for listener in bound { await listener.close() }
            outage.end()
            parts.books.peerLog.end()
            self.tls.end()
            try? await ownGroup?.shutdownGracefully()
            throw error
        }
        let metrics = ServerMetrics(
            factory: self.configuration.metricsFactory ?? MetricsSystem.factory,
            parts: parts,
            loops: loops
        )
        return Running(
            listeners: bound,
            parts: parts,
            settings: settings,
            loops: loops,
            ownGroup: ownGroup,
            metrics: metrics,
            sweepClock: SweepClock(loops, every: self.sweepInterval, time: self.configuration.time) {
                parts.books.ledger.setStandingBytes(parts.services.idempotentAnswers.kept.bytes)
                parts.books.ledger.check()
                parts.services.idempotentAnswers.forgetExpired(now: parts.books.time.now())
                outage.check()
                // No connection need come for others to get what they need.
                if outage.isUnderWay { _ = shortage.makeRoom() }
                shortage.closeExcess(parts.books.quota.excess)
            },
            outage: outage
        )
    }

    /// Warns of limits that the process cannot keep, unless the limits were disabled explicitly.
    private func warn(of quota: ConnectionQuota.Limits, _ descriptors: Int?) {
        guard let descriptors, quota.maximum < .max, quota.maximum > descriptors - DescriptorLimit.fewest else {
            return
        }
        self.configuration.logger.warning(
            "there may be more connections than file descriptors",
            metadata: ["maximumConnections": "\(quota.maximum)", "descriptors": "\(descriptors)"]
        )
    }

    /// The interval of the checks for timeouts: a quarter of the shortest timeout, but at least 10 ms and at most a
    /// second.
    private var sweepInterval: TimeAmount {
        let limits = self.configuration.limits
        let times = [
            limits.idleTimeout, limits.firstFrameTimeout, limits.readStallTimeout, limits.writeStallTimeout,
            limits.minimumSilence,
            limits.strangers.timeToBecomeKnown,
        ]
        let shortest = times.compactMap { $0 }.min().map { TimeAmount(clamping: $0).nanoseconds / 4 } ?? .max
        return .nanoseconds(min(max(shortest, 10_000_000), 1_000_000_000))
    }

    /// Stops accepting, tells clients to go away, finishes the requests in flight, and returns when every connection is
    /// closed.
    ///
    /// In the standard format a client is told to go away, and its connection stays open until the client closes it or
    /// the grace period is over; other connections are closed as soon as nothing is in flight. A request that arrives
    /// meanwhile is answered ``/HHSocket/Status/draining`` (504). Requests that are still running when the grace period
    /// is over are cancelled and their connections closed. Calling it again shortens the grace period; it has no effect
    /// on a server that does not run, and a server that is starting is shut down once it has started.
    ///
    /// - Parameter gracePeriod: How long requests in flight may take; zero closes everything immediately; nil, the
    ///   default: the grace period of ``ServerConfiguration/shutdown``.
    public func shutdown(gracePeriod: Duration? = nil) async {
        await self.waitWhileStarting()
        let grace = TimeAmount(clamping: gracePeriod ?? self.configuration.shutdown.gracePeriod)
        let stopping: Task<Void, Never>? = self.state.withLockedValue { state in
            switch state {
            case .idle, .starting, .stopped:
                return nil
            case .stopping(let stopping):
                return stopping.finished
            case .running(let running):
                let finished = Task { await self.finish(running) }
                state = .stopping(Stopping(running: running, finished: finished))
                return finished
            }
        }
        guard let finished = stopping else { return }
        if grace <= .nanoseconds(0) {
            self.kill()
            await finished.value
        } else {
            let killer = Task {
                try await self.configuration.time.sleep(for: grace)
                self.kill()
            }
            await finished.value
            killer.cancel()
        }
    }

    /// Closes every connection immediately, unless the server has stopped.
    private func kill() {
        // Submitted under the lock: once the server has stopped, the event loops may be gone.
        self.state.withLockedValue { state in
            if case .stopping(let stopping) = state { stopping.running.kill() }
        }
    }

    private func finish(_ running: Running) async {
        for listener in running.listeners { await listener.close() }
        self.tls.end()
        let policy = self.configuration.shutdown
        for drained in running.loops.map({ $0.drain(policy) }) { try? await drained.get() }
        let statistics = Self.total(running.loops)
        self.state.withLockedValue { $0 = .stopped(statistics) }
        running.metrics?.end()
        running.sweepClock.end()
        running.parts.books.ledger.end()
        running.outage.end()
        running.parts.books.peerLog.end()
        running.parts.services.threads.shutdown()
        try? await running.ownGroup?.shutdownGracefully()
    }

    /// Reads certificates and keys again: connections that are accepted from now on get the new ones, open connections
    /// keep the old ones.
    ///
    /// Clients can still resume their TLS sessions if nothing but the server's certificates and keys, lists of revoked
    /// certificates and times has changed; otherwise they begin new ones.
    ///
    /// - Parameter tls: The settings that every listener with TLS uses from now on; nil, the default: each listener
    ///   keeps its settings, whose files are read again.
    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument` that says which file cannot be read, or that no
    ///   listener has TLS; the old ones stay.
    public func reloadTLS(_ tls: ServerTLS? = nil) throws(SocketError) {
        try self.tls.reload(tls)
    }

    /// Returns once each event loop has had a turn: late, or never, where a handler blocks one. At once unless it runs.
    package func awaitTurns() async {
        // Submitted under the lock: once it has stopped, the event loops may be gone.
        let futures = self.state.withLockedValue { state -> [EventLoopFuture<Void>] in
            switch state {
            case .idle, .starting, .stopped: []
            case .running(let running): running.loops.map { $0.eventLoop.submit {} }
            case .stopping(let stopping): stopping.running.loops.map { $0.eventLoop.submit {} }
            }
        }
        for future in futures { try? await future.get() }
    }

    // MARK: What it is doing

    /// Whether it accepts connections: from the end of ``start()`` to the beginning of a shutdown.
    public var isAccepting: Bool {
        if case .running = self.state.withLockedValue({ $0 }) { true } else { false }
    }

    /// The addresses that it listens on, with the ports that the system chose, in the order of the listeners; empty
    /// unless it runs.
    public var addresses: [Endpoint] {
        if case .running(let running) = self.state.withLockedValue({ $0 }) {
            running.listeners.map(\.address)
        } else {
            []
        }
    }

    /// The first of ``addresses``; nil unless it runs.
    package var address: Endpoint? { self.addresses.first }

    /// The connections open now.
    public var connectionCount: Int {
        self.connectionsByLoop.reduce(0, +)
    }

    /// The connections open now on each event loop. New ones go to the event loops in turn.
    package var connectionsByLoop: [Int] { self.loops.map(\.counters.connectionCount) }

    /// The requests in flight now; those are not counted that are answered on the event loop.
    public var requestsInFlight: Int { self.parts?.books.ledger.requestsInFlight ?? 0 }

    /// The bytes held now for arriving frames, for requests in flight, and for answers and pushes that are not taken,
    /// at their cost in memory. The cost of connections themselves and kept answers are not included; see
    /// ``heldBytes``.
    package var bufferedBytes: Int {
        guard let ledger = self.parts?.books.ledger else { return 0 }
        return ledger.bytes - ledger.connectionBytes
    }

    /// The bytes held now, at their cost in memory: for arriving frames, for requests in flight, for answers and pushes
    /// that are not taken, for connections themselves, and for answers that are kept for idempotency keys.
    /// ``ServerLimits/maximumBufferedBytes`` bounds this number. The resident memory of the process grows by at most
    /// twice this number plus 64 MiB.
    public var heldBytes: Int { self.parts?.books.ledger.bytes ?? 0 }

    /// Returns the largest number of bytes that were held since the last call, nearly. For tests.
    func takePeakOfHeldBytes() -> Int { self.parts?.books.ledger.takePeak() ?? 0 }

    /// The authentications that run, and those that wait.
    var authentications: (running: Int, waiting: Int) { self.parts?.services.authentications.counts ?? (0, 0) }

    /// The counts since it started.
    public var statistics: ServerStatistics {
        switch self.state.withLockedValue({ $0 }) {
        case .idle, .starting: ServerStatistics()
        case .running(let running): Self.total(running.loops)
        case .stopping(let stopping): Self.total(stopping.running.loops)
        case .stopped(let statistics): statistics
        }
    }

    private var running: Running? {
        switch self.state.withLockedValue({ $0 }) {
        case .running(let running): running
        case .stopping(let stopping): stopping.running
        case .idle, .starting, .stopped: nil
        }
    }

    /// The event loops of the server, empty unless it runs.
    var loops: [ServerLoop] { self.running?.loops ?? [] }
    var parts: ServerParts? { self.running?.parts }

    private static func total(_ loops: [ServerLoop]) -> ServerStatistics {
        loops.reduce(into: ServerStatistics()) { $0 += $1.counters.statistics }
    }

    // MARK: Sessions

    /// The connections of a client that has been found out to be `identity`, in the order in which they were made.
    ///
    /// - Parameter identity: As in ``ServerSession/authenticate(as:)``.
    public func sessions(of identity: String) -> [ServerSession] {
        guard let books = self.parts?.books else { return [] }
        return books.registry.connections(of: identity).compactMap { books.sessions[$0.id] }
    }

    /// The clients that are connected now, in no order: all but WebSockets that carry messages. Empty unless the server
    /// runs.
    ///
    /// The property creates an array, and blocks no event loop. ``ConnectionPolicy/onConnect`` and
    /// ``ConnectionPolicy/onClose`` report changes.
    public var sessions: [ServerSession] { self.parts?.books.sessions.all ?? [] }

    /// The WebSockets that carry messages now, as ``sessions``.
    public var webSockets: [WebSocketConnection] { self.parts?.books.webSockets.all ?? [] }

    /// Sends a push to every connection of one client.
    ///
    /// - Returns: The number of connections that accepted it; 0 if the client is not connected.
    @discardableResult
    public func push(type: UInt32, body: ByteBuffer, to identity: String) async -> Int {
        await self.parts?.books.registry.push(type: type, body: body, to: identity) ?? 0
    }

    /// Sends a push (in the standard format serial 1, status 200) to every connection.
    ///
    /// The frame is encoded once for each listener's format. A client for which ``ServerLimits/maximumWaitingPushes``
    /// or ``ServerLimits/maximumWaitingPushBytes`` already wait does not get it; ``ServerCounter/pushesDropped``
    /// counts such pushes.
    ///
    /// - Parameters:
    ///   - type: A type that the wire formats leave to applications, in the standard format 16 to 0x1FFFFFFF.
    ///   - body: The payload.
    /// - Returns: The number of connections that accepted it; connections whose wire format has no pushes or reserves
    ///   `type` do not.
    @discardableResult
    public func push(type: UInt32, body: ByteBuffer) async -> Int {
        guard case .running(let running) = self.state.withLockedValue({ $0 }) else { return 0 }
        // Outside the lock: a codec is the application's code, and may ask the server for something.
        let pushes = running.settings.map { settings in
            settings.push(type: type, body: body).map { push in
                var push = push
                push.share = SharedCharge(running.parts.books.ledger, bytes: push.bytes.charge)
                return push
            }
        }
        // Submitted under the lock: once the server stops, the event loops may be gone. It is started once.
        let counts = self.state.withLockedValue { state -> [EventLoopFuture<Int>] in
            guard case .running(let running) = state else { return [] }
            return running.loops.map { $0.push(pushes) }
        }
        var total = 0
        for count in counts { total += (try? await count.get()) ?? 0 }
        return total
    }
}
