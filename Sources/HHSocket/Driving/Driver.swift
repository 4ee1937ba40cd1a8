// SPDX-License-Identifier: Apache-2.0
import Foundation
import Metrics
import NIOConcurrencyHelpers
import NIOCore

/// Makes connections and maintains one, on the socket's thread: performs the decisions of ``ConnectionMachine``. It
/// handles links, but does not know their language.
///
/// This file has the user's requests; `Driver+Actions` performs the machine's decisions, and `Driver+Links` handles the
/// notifications of links.
package final class Driver: ConnectionDriver, @unchecked Sendable {
    // Proof of Sendable: constants are Sendable themselves, or locked; the variables are accessed only on the event
    // loop, except the host, which is set before the driver is shared.
    typealias Machine = ConnectionMachine<DriverGenerator>

    package let loop: SocketLoop
    package let executor: SocketExecutor
    package let configuration: SocketConfiguration
    private let thread: SocketThread
    let dialer: Dialer
    let maker: any LinkMaker
    private let shared = NIOLockedValueBox(Shared())
    var log: ConnectionLog?
    /// Nil without a metrics backend.
    let metrics: ConnectionMetrics?

    var machine: Machine
    var links = DriverLinks()
    var network = NetworkObservation()
    /// Determines the ping interval; nil without pings.
    var tuner: HeartbeatTuner?
    /// The machine's.
    private var timer: (deadline: NIODeadline, id: SocketLoop.TimerID)?
    var host: (any DriverHost)?
    private(set) var isInvalidated = false
    /// Whether the consumer has suspended reading.
    private(set) var isReadingSuspended = false

    /// State that other threads read.
    private struct Shared {
        var state = SocketState.idle
        var recorder = HistoryRecorder()
    }

    /// Observations of the network, and searches of resolvers.
    struct NetworkObservation {
        /// The resolver's present search.
        var search: Task<Void, Never>?
        /// Follows the network, from the first ``Driver/connect(attempts:in:)`` on.
        var observation: Task<Void, Never>?
        /// The path that the monitor reported last.
        var path: NetworkPath?
    }

    /// - Parameters:
    ///   - maker: Makes the links.
    ///   - refusal: The fault of this configuration, with which every attempt to connect fails; nil if it is valid.
    ///   - world: The clock, network and randomness; nil for the system's. Its thread is that of the event loops in the
    ///     configuration.
    package init(
        configuration: SocketConfiguration,
        maker: any LinkMaker,
        refusal: SocketError? = nil,
        world: DriverWorld? = nil
    ) {
        self.configuration = configuration
        self.maker = maker
        self.thread = SocketThread(lent: configuration.eventLoopGroup)
        self.loop = SocketLoop(
            eventLoop: self.thread.eventLoop,
            callbackQueue: configuration.callbackQueue,
            thread: world?.thread,
            time: configuration.time,
            logger: configuration.logger
        )
        self.executor = SocketExecutor(self.loop)
        self.dialer = Dialer(
            eventLoop: self.thread.eventLoop,
            configuration: configuration,
            refusal: refusal,
            maker: maker,
            world: world
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
                handshake: maker.handshake,
                resolverTimeout: configuration.resolver.map { _ in configuration.connectTimeout },
                background: configuration.backgroundPolicy,
                proxy: configuration.proxy?.endpoint,
                addressFamilies: configuration.serverAddressFamilies,
                linksMayOverlap: maker.linksMayOverlap
            ),
            generator: DriverGenerator(world)
        )
        self.tuner = configuration.heartbeat.map {
            HeartbeatTuner($0.interval, storage: configuration.heartbeatStorage, isApplicationActive: true)
        }
    }

    /// Sets the observer of connections. Before the first submission.
    package func setHost(_ host: any DriverHost & TurnHost) {
        self.host = host
        self.loop.setHost(host)
    }

    // MARK: From any thread

    @discardableResult
    package func submit(_ body: @escaping @Sendable (inout Turn) -> Void) -> Bool { self.loop.submit(body) }

    package var state: SocketState { self.shared.withLockedValue { $0.state } }

    /// The latest events of the connection, and their causes.
    package var history: ConnectionHistory { self.shared.withLockedValue { $0.recorder.history } }

    /// Reads the certificates and keys of TLS again, on the calling thread.
    ///
    /// - Throws: `invalidArgument` if they cannot be read, or if there is no TLS.
    package func reloadTLS() throws(SocketError) {
        guard let tls = self.dialer.tls else {
            throw .invalid("the configuration has no TLS to reload (SocketConfiguration.tls)")
        }
        try tls.reload()
    }

    // MARK: Requests of the user

    package func connect(attempts: Int? = nil, in turn: inout Turn) {
        guard !self.isInvalidated else { return }
        self.observeNetwork()
        self.maker.handshake?.admission?.userConnects()
        self.apply(in: &turn) { $0.connect(attempts: attempts, now: $1) }
    }

    /// Starts again if attempts have stopped because all allowed rounds failed.
    func connectAgain(in turn: inout Turn) {
        guard !self.isInvalidated else { return }
        self.apply(in: &turn) { $0.connectAgain(now: $1) }
    }

    package func disconnect(in turn: inout Turn) {
        self.apply(in: &turn) { $0.disconnect(now: $1) }
    }

    package func switchServer(to endpoint: Endpoint?, in turn: inout Turn) {
        guard !self.isInvalidated else { return }
        self.apply(in: &turn) { $0.switchServer(to: endpoint, now: $1) }
    }

    package func replaceServers(with endpoints: [Endpoint], in turn: inout Turn) {
        self.apply(in: &turn) { $0.replaceServers(with: endpoints, now: $1) }
    }

    package func networkChanged(isReachable: Bool, label: String?, in turn: inout Turn) {
        self.nameNetwork(label, in: &turn)
        self.shared.withLockedValue { $0.recorder.networkName = label }
        self.apply(in: &turn) { $0.networkChanged(isReachable: isReachable, now: $1) }
    }

    package func didEnterBackground(in turn: inout Turn) {
        self.apply(in: &turn) { $0.didEnterBackground(now: $1) }
    }

    package func willEnterForeground(in turn: inout Turn) {
        self.apply(in: &turn) { $0.willEnterForeground(now: $1) }
    }

    private func nameNetwork(_ label: String?, in turn: inout Turn) {
        guard let label else { return }
        self.tuner?.networkChanged(to: label)
        self.updateHeartbeatInterval(in: &turn)
    }

    private func observeNetwork() {
        guard self.network.observation == nil, let paths = self.configuration.networkMonitor?.paths() else { return }
        self.network.observation = Task {
            for await path in paths { self.submit { self.networkPathIs(path, in: &$0) } }
        }
    }

    private func networkPathIs(_ path: NetworkPath, in turn: inout Turn) {
        guard path != self.network.path, !self.isInvalidated else { return }
        let isFirst = self.network.path == nil
        self.network.path = path
        AddressLookup.system.networkPathIs(path)
        guard isFirst else { return self.networkChanged(isReachable: path.isReachable, label: path.name, in: &turn) }
        self.nameNetwork(path.name, in: &turn)
        self.apply(in: &turn) { $0.networkIsKnown(isReachable: path.isReachable, now: $1) }
    }

    // MARK: Requests of the layer above

    package func perform(_ request: DriverRequest, in turn: inout Turn) {
        switch request {
        case .reconnectSooner:
            self.apply(in: &turn) { $0.reconnectSooner(now: $1) }
        case .suspect(let id):
            self.links.ready(id)?.probe(isUrgent: false, in: &turn)
        case .serverFails(let endpoint, let wrong, let calls):
            self.apply(in: &turn) { machine, now in
                [.report(.serverFails(endpoint, wrong: wrong, calls: calls))] + machine.failOver(now: now)
            }
        case .goAway(let id, let departure, let isAnnounced):
            self.apply(in: &turn) { $0.goAway(id, departure, isAnnounced: isAnnounced, now: $1) }
        case .replace(let id):
            self.apply(in: &turn) { $0.replace(id, now: $1) }
        case .proved(let id):
            self.apply(in: &turn) { $0.connectionIsProved(id, now: $1) }
        case .finishDraining(let id):
            self.finishDraining(id, in: &turn)
        case .setReading(let isSuspended):
            self.setReading(isSuspended: isSuspended, in: &turn)
        case .awaitHello(let awaits):
            self.machine.handshakeAwaitsHello(awaits)
        case .gateReturned(let id, nil):
            self.apply(in: &turn) { $0.handshakeSucceeded(id, now: $1) }
        case .gateReturned(let id, let refusal?):
            self.apply(in: &turn) { $0.handshakeFailed(id, because: refusal.error, remedy: refusal.remedy, now: $1) }
        }
    }

    /// Suspends or resumes reading. Bytes that were read are still delivered, and so are those that the kernel holds
    /// when the peer ends the connection. A connection that is being made is not held up before it is ready.
    private func setReading(isSuspended: Bool, in turn: inout Turn) {
        guard isSuspended != self.isReadingSuspended else { return }
        self.isReadingSuspended = isSuspended
        for link in self.links.inUse { link.setReading(isSuspended: isSuspended, in: &turn) }
    }

    package var isNetworkReachable: Bool { self.machine.isReachable }

    package var isClosed: Bool {
        if case .closed = self.machine.state { true } else { false }
    }

    /// Whether attempts have stopped because all that were allowed have failed.
    package var hasRunOut: Bool { self.machine.hasRunOut }

    package func notConnected() -> SocketError {
        if case .held(let reason) = self.machine.phase, reason.code == .networkUnreachable { return reason }
        let last = self.machine.lastError
        let target = (last?.endpoint ?? self.configuration.servers.first).map { " to \($0)" } ?? ""
        let why = last.map { "; the last failure: \($0.message)" } ?? "; call connect() first"
        return SocketError(
            .notConnected,
            message: "there is no connection\(target)\(why)",
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

    /// The error of waiters after the user has disconnected.
    package static var closedByUser: SocketError { Machine.closedByUser(nil) }

    // MARK: The end

    /// Ends everything permanently, including the thread. From any thread, any number of times.
    package func invalidate() {
        self.submit { self.invalidate(in: &$0) }
    }

    package func invalidate(in turn: inout Turn) {
        guard !self.isInvalidated else { return }
        self.isInvalidated = true
        // Timers and the observation of the network retain this object until here: if they held it weakly, every
        // reference to it would be counted in a side table, at a cost for every call.
        self.disconnect(in: &turn)
        self.network.search?.cancel()
        self.network.observation?.cancel()
        self.host?.connectionChanged(.invalidated, in: &turn)
        self.host = nil
        let idle = self.loop.eventLoop.makePromise(of: Void.self)
        let isGone = self.dialer.whenFinished().and(self.drained()).and(idle.futureResult)
        self.loop.close { idle.succeed() }
        isGone.whenComplete { [thread] _ in thread.end() }
    }

    /// Completes when the connection that was asked to close is closed; at once if there was none.
    package func drained() -> EventLoopFuture<Void> {
        .andAllComplete(self.links.closing.values.map(\.gone), on: self.loop.eventLoop)
    }

    /// Updates the metrics. Must be called once after each turn, so that counting costs next to nothing.
    package func measure() {
        guard let metrics = self.metrics else { return }
        for link in self.links.inUse { metrics.take(link.takeTraffic()) }
        if let pending = self.links.pending { metrics.take(pending.link.takeTraffic()) }
        metrics.queued(bytes: self.links.ready?.link.queuedBytes ?? 0)
    }

    /// Counts the traffic of a link that is no longer in use.
    func measure(_ link: any DrivenLink) {
        self.metrics?.take(link.takeTraffic())
    }

    // MARK: The machine

    /// Notifies the machine of an event, and performs its actions.
    func apply(in turn: inout Turn, _ event: (inout Machine, NIODeadline) -> [Machine.Action]) {
        let actions = event(&self.machine, turn.now)
        let state = self.machine.state
        self.shared.withLockedValue { $0.state = state }
        for action in actions { self.perform(action, in: &turn) }
        if !self.machine.isResolving { self.network.search.take()?.cancel() }
        self.armTimer()
    }

    func record(_ event: SocketEvent, now: NIODeadline) {
        self.shared.withLockedValue { $0.recorder.happened(event, now: now, date: Date()) }
    }

    /// One timer for all that the machine waits for.
    private func armTimer() {
        let deadline = self.machine.nextDeadline
        guard deadline != self.timer?.deadline else { return }
        if let timer = self.timer { self.loop.removeTimer(timer.id) }
        self.timer = deadline.map { deadline in
            let id = self.loop.setTimer(deadline) { turn in
                self.timer = nil
                self.apply(in: &turn) { $0.timerFired(now: $1) }
            }
            return (deadline, id)
        }
    }
}
