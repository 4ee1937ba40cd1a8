// SPDX-License-Identifier: Apache-2.0
public import HHSocketLink
public import Logging
public import Metrics
public import NIOCore

/// The configuration of a server.
public struct ServerConfiguration: Sendable {
    /// The listeners on which connections are accepted; one at least.
    public var listeners: [ServerListener]
    /// The bounds of its resources.
    public var limits: ServerLimits
    /// The rules by which the server pings clients and considers them dead. Nil, the default: it does neither. It
    /// must be nil if a listener's format does not let servers ping. The strategy is asked once for each
    /// connection, with an empty history: an adaptive strategy stays at its minimum.
    public var heartbeat: HeartbeatPolicy?
    /// The answer to a client's hello. By default every known feature is agreed on, and hello is not required.
    public var hello = ServerHello()
    /// The limits on the streams of a connection, which the answer to a client's hello announces. Nil: hello does
    /// not agree on streams; it does not do so either if ``answersInOrder`` is set. By default a client may have up
    /// to 100 streams open, with up to 512 KiB waiting on each and 4 MiB on all together.
    public var streams: StreamPolicy? = StreamPolicy()
    /// The application's decisions on connections, and its observers of them. None by default: every client may
    /// connect.
    public var connections = ConnectionPolicy()
    /// The treatment of clients at ``SocketServer/run()``'s graceful shutdown, and at
    /// ``SocketServer/shutdown(gracePeriod:)``.
    public var shutdown = ShutdownPolicy()
    /// Whether the answers of each connection are sent in the order of its requests. False by default: each is sent
    /// as soon as it is ready.
    public var answersInOrder = false
    /// The number of threads that run the handlers of ``Router/handleBlocking(_:limits:_:)``; 16 by default.
    /// They begin with the first such request, and serve connections in turn.
    public var blockingThreads = 16
    /// The logger, which receives the metadata `connection`, `remote` and `identity`, never payloads: errors that
    /// handlers throw at `error`, clients that are closed for a limit at `info`, connections at `debug`. A logger
    /// with the label `hhsocket.server` by default.
    public var logger = Logger(label: "hhsocket.server")
    /// The factory of metrics, whose names begin with `hhsocket.server.`. Nil, the default, uses the factory that
    /// was passed to `MetricsSystem.bootstrap`.
    public var metricsFactory: (any MetricsFactory)?
    /// The event loops to run on, NIO's POSIX ones. Nil, the default: the server makes its own, ``eventLoops`` of
    /// them, and ends them when it is shut down.
    public var eventLoopGroup: (any EventLoopGroup)?
    /// The number of event loops that the server makes, a thread each. Nil, the default: one for each core. Without
    /// effect where ``eventLoopGroup`` is set.
    public var eventLoops: Int?
    /// The clock of limits, heartbeats and ages; the system's, except in tests.
    package var time = SocketTime()

    /// - Parameters:
    ///   - listeners: Where to accept connections.
    ///   - limits: The limits on clients.
    ///   - heartbeat: When to ping clients; nil, the default: never.
    ///   - eventLoopGroup: The event loops to run on; nil, the default: the server's own.
    public init(
        listeners: [ServerListener],
        limits: ServerLimits = ServerLimits(),
        heartbeat: HeartbeatPolicy? = nil,
        eventLoopGroup: (any EventLoopGroup)? = nil
    ) {
        self.listeners = listeners
        self.limits = limits
        self.heartbeat = heartbeat
        self.eventLoopGroup = eventLoopGroup
    }

    /// Creates a configuration with one listener.
    ///
    /// - Parameters:
    ///   - host: The address to listen on: `127.0.0.1` by default, so that the server is not reachable from the
    ///     network unless you ask for it.
    ///   - port: The TCP port; 0, the default, takes a free one.
    ///   - unixPath: Listen on a Unix domain socket at this path instead; nil by default.
    ///   - tls: TLS; nil by default.
    ///   - wireFormat: The layout of frames; the standard format by default.
    ///   - header: The values of the format's custom response fields, by name.
    ///   - limits: The limits; those of ``ServerLimits`` by default.
    ///   - heartbeat: The pings of the server; nil, the default: it sends none.
    ///   - eventLoopGroup: The event loops to run on; nil, the default: the server's own.
    public init(
        host: String = "127.0.0.1",
        port: Int = 0,
        unixPath: String? = nil,
        tls: ServerTLS? = nil,
        wireFormat: WireFormat = .standard,
        header: [String: [UInt8]] = [:],
        limits: ServerLimits = ServerLimits(),
        heartbeat: HeartbeatPolicy? = nil,
        eventLoopGroup: (any EventLoopGroup)? = nil
    ) {
        var listener = ServerListener(host: host, port: port, tls: tls, wireFormat: wireFormat, header: header)
        listener.unixPath = unixPath
        self.init(listeners: [listener], limits: limits, heartbeat: heartbeat, eventLoopGroup: eventLoopGroup)
    }
}
