// SPDX-License-Identifier: Apache-2.0
public import HHSocketServer
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
public import ServiceLifecycle

/// An address at which a server's metrics and health can be asked for over HTTP.
///
/// ```swift
/// let monitoring = MonitoringEndpoint(host: "0.0.0.0", server: server, metrics: metrics)
/// let group = ServiceGroup(
///     services: [monitoring, server],
///     gracefulShutdownSignals: [.sigterm, .sigint],
///     logger: logger
/// )
/// ```
/// Before the server in the group, so that it is shut down after it and reports the drain.
///
/// | path | |
/// |---|---|
/// | `/metrics` | the metrics in Prometheus' text format; 404 without `metrics` |
/// | `/readyz` | 200 while the server accepts connections and `isReady` says so, otherwise 503 |
/// | `/livez` | 200, once each of the server's event loops has had a turn |
///
/// It answers GET and HEAD, one request on a connection, on a thread of its own. It has neither TLS nor authentication:
/// offer it only to a network whose hosts may know these numbers. At most 64 connections are open, each for 10 s; where
/// there are more, the oldest one is closed whose request has not come, or else the oldest of all.
public final class MonitoringEndpoint: Service {
    /// The largest number of connections; for a further one the oldest without a request is closed, or else the oldest.
    static let maximumConnections = 64
    /// The time after which a connection is closed, whatever it waits for.
    static let connectionTimeout = TimeAmount.seconds(10)

    private struct Running: Sendable {
        let channel: any Channel
        let group: MultiThreadedEventLoopGroup
        let address: Endpoint
    }

    private enum State {
        case idle
        case starting
        case running(Running)
        case stopped
    }

    private let endpoint: Endpoint
    private let answers: MonitoringAnswers
    private let state = NIOLockedValueBox(State.idle)

    /// - Parameters:
    ///   - host: The address to listen on; `127.0.0.1` by default, `0.0.0.0` for every interface.
    ///   - port: The TCP port; 9464 by default, 0 takes a free one.
    ///   - server: The server whose health is reported.
    ///   - metrics: What `/metrics` answers with; nil, the default: there is none.
    ///   - isReady: A further condition for clients to come, such as a connection to a database; asked at each request
    ///     for `/readyz`, and cancelled with its connection. Nil, the default: none.
    public init(
        host: String = "127.0.0.1",
        port: Int = 9464,
        server: SocketServer,
        metrics: PrometheusMetrics? = nil,
        isReady: (@Sendable () async -> Bool)? = nil
    ) {
        self.endpoint = Endpoint(host: host, port: port)
        self.answers = MonitoringAnswers(server: server, metrics: metrics, isReady: isReady)
    }

    /// Answers until the task's graceful shutdown, or its cancellation.
    ///
    /// - Throws: As ``start()``.
    public func run() async throws {
        try await self.start()
        // Returns at cancellation too.
        try? await gracefulShutdown()
        await self.shutdown()
    }

    /// Listens; returns once connections are accepted.
    ///
    /// - Throws: ``/HHSocket/SocketError`` that names host and port: `bindFailed` when the address is taken, not
    ///   allowed or not this machine's, `hostNotFound` when the host name has no address, `invalidArgument` when it has
    ///   been started before.
    public func start() async throws(SocketError) {
        let mayStart = self.state.withLockedValue { state in
            guard case .idle = state else { return false }
            state = .starting
            return true
        }
        guard mayStart else {
            throw .invalid("a monitoring endpoint can be started once; make another one", endpoint: self.endpoint)
        }
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let channel: any Channel
        do {
            channel = try await self.bind(on: group)
        } catch {
            self.state.withLockedValue { $0 = .stopped }
            try? await group.shutdownGracefully()
            throw SocketError.cannotListen(on: self.endpoint, error)
        }
        let port = channel.localAddress?.port ?? self.endpoint.port
        let running = Running(
            channel: channel,
            group: group,
            address: Endpoint(host: channel.localAddress?.ipAddress ?? self.endpoint.host, port: port)
        )
        let wasStopped = self.state.withLockedValue { state in
            guard case .starting = state else { return true }
            state = .running(running)
            return false
        }
        if wasStopped { await Self.end(running) }
    }

    private func bind(on group: MultiThreadedEventLoopGroup) async throws -> any Channel {
        let connections = NIOLoopBoundBox.makeBoxSendingValue(MonitoringConnections(), eventLoop: group.next())
        return try await ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 256)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            // A client may close its direction once it has sent its request.
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelInitializer { [answers] channel in
                channel.eventLoop.makeCompletedFuture {
                    let handler = MonitoringHandler(answers, channel: channel, connections: connections.value)
                    connections.value.enter(handler)
                    try channel.pipeline.syncOperations.addHandler(handler)
                }
            }
            .bind(host: self.endpoint.host, port: self.endpoint.port)
            .get()
    }

    /// The address that it listens on, with the port that the system chose; nil unless it runs.
    public var address: Endpoint? {
        if case .running(let running) = self.state.withLockedValue({ $0 }) { running.address } else { nil }
    }

    /// Closes everything. It cannot be started again.
    public func shutdown() async {
        let running = self.state.withLockedValue { state -> Running? in
            defer { state = .stopped }
            if case .running(let running) = state { return running } else { return nil }
        }
        if let running { await Self.end(running) }
    }

    private static func end(_ running: Running) async {
        try? await running.channel.close()
        try? await running.group.shutdownGracefully()
    }
}

/// The connections of an endpoint, on its event loop.
final class MonitoringConnections {
    /// In the order in which they came.
    private var handlers: [MonitoringHandler] = []

    /// Adds a connection. If there are too many, closes the oldest whose request has not come, or else the oldest: its
    /// client may not read, or its answer may wait for a condition that hangs.
    func enter(_ handler: MonitoringHandler) {
        if self.handlers.count >= MonitoringEndpoint.maximumConnections,
            let oldest = self.handlers.first(where: { !$0.isAnswered }) ?? self.handlers.first
        {
            self.remove(oldest)
            oldest.close()
        }
        self.handlers.append(handler)
    }

    func remove(_ handler: MonitoringHandler) { self.handlers.removeAll { $0 === handler } }
}
