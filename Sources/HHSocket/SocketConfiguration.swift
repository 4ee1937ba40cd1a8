// SPDX-License-Identifier: Apache-2.0
public import Logging
public import Metrics
import NIOCore

/// The settings by which a ``Socket`` connects and stays connected, and its limits.
public struct SocketConfiguration: Sendable {
    /// The servers to choose from; equally good ones are tried in this order.
    public var servers: [Endpoint]
    /// Finds the servers at run time; nil by default, for only ``servers``. If it is set, ``servers`` are used until it
    /// has answered once, and may be empty.
    public var resolver: ServerResolver?
    /// The rules by which a server that behaved badly is passed over.
    public var serverPolicy = ServerPolicy()
    /// Attempts at several servers at once; nil by default: one after the other.
    public var racing: RacingPolicy?
    /// The address families by which servers are reached, and which of them is tried first; both in the system's order
    /// by default.
    ///
    /// It applies to host names, to IP addresses in ``servers``, to the servers that a resolver finds, and to redirects
    /// of WebSockets. Among equally good servers, IP addresses of the other family come last. An attempt at an address
    /// of an excluded family fails with ``SocketError/Code/invalidArgument``, and one at a name without an allowed
    /// address with ``SocketError/Code/hostNotFound``. With a ``proxy`` it applies to the proxy's own address, and the
    /// proxy chooses how it reaches servers.
    public var addressFamilies = AddressFamilies.any
    /// TLS; nil by default: anyone on the path can then read and change the data. A server whose URL begins with `wss`
    /// always has TLS, and one whose URL begins with `ws` cannot have it.
    public var tls: ClientTLS?
    /// The proxy through which servers are reached; nil by default, for none. Unix domain sockets are always reached
    /// directly.
    public var proxy: Proxy?
    /// The options of opening WebSockets, if a server's address is a URL.
    public var webSocket = WebSocketOptions()
    /// The handshake that must succeed on each new connection before anything else is sent; nil by default, for none.
    public var gate: HandshakeGate?
    /// The time allowed for one attempt, including name resolution, proxy, TLS and opening a WebSocket.
    /// 10 s by default.
    public var connectTimeout: Duration = .seconds(10)
    /// The waits between rounds of attempts.
    public var backoff = Backoff()
    /// The time limit for draining a connection after a failover. 30 s by default.
    public var drainTimeout: Duration = .seconds(30)
    /// The monitor that reports whether there is a network, and changes of its path. Without a network no attempts are
    /// made, unless a server in the list is on this machine; when the path changes a live connection is probed, and
    /// attempts start anew: at once if a call or a frame waits, otherwise within a second. The system's by default;
    /// with nil only ``Socket/networkDidChange(isReachable:name:)`` reports changes.
    public var networkMonitor: (any NetworkMonitor)? = SystemNetworkMonitor.shared
    /// The treatment of the connection when the app goes into the background.
    public var backgroundPolicy = BackgroundPolicy.finishTasks
    /// The rules by which to ping and to consider the server dead; nil never pings. A server's pings are answered
    /// either way.
    ///
    /// Without pings a connection that has died without notice, such as during the sleep of the machine or by a change
    /// of the network, is found dead only when TCP gives up sending, which takes about 15 minutes, or never if nothing
    /// is sent.
    public var heartbeat: HeartbeatPolicy? = HeartbeatPolicy()
    /// The store for the results of adaptive heartbeats on each network; by default it lasts as long as the process.
    public var heartbeatStorage: (any HeartbeatStorage)? = InMemoryHeartbeatStorage()
    /// The layout of frames; the standard format by default. In a format in which clients do not ping, ``heartbeat``
    /// has no effect.
    public var wireFormat = WireFormat.standard
    /// The values of the format's custom header fields, by name, in frames that do not set them. Fields not named here
    /// are zero. If the format lacks a name or has it with another width, no connection is made: attempts fail with
    /// ``SocketError/Code/invalidArgument``.
    public var header: [String: [UInt8]] = [:]
    /// The largest payload received or sent, in bytes. 16 MiB by default.
    public var maximumPayloadLength = Frame.defaultMaximumPayloadLength
    /// The number of consecutive frames with a wrong checksum that ends the connection. 3 by default, 1 at least.
    package var maximumCorruptRun = FrameDecoder.defaultMaximumCorruptRun
    /// The number of bytes of frames that may wait while the peer does not read; a frame beyond it fails with
    /// ``SocketError/Code/queueFull``. A single frame may always wait. 64 MiB by default.
    public var maximumQueuedBytes = 64 << 20
    /// The rules by which ``Socket/send(_:priority:)`` waits or fails.
    public var writePolicy = WritePolicy()
    /// The window in which a stalled connection is detected: it is lost if bytes wait and fewer than 128 a second reach
    /// the server within the window. That is one to two windows after they stop, and never on a link that is merely
    /// slow. 30 s by default. In a format whose frames end with separators, a push that makes no progress within this
    /// window is abandoned too.
    public var writeStallTimeout: Duration = .seconds(30)
    /// The logger for events of the connection, with the metadata `server`, `attempt`, `cause` and `error`, never with
    /// payloads; at `debug` and `trace`, and at `warning` when attempts stop. Nil by default, for no logging.
    public var logger: Logger?
    /// The factory of the connection's metrics, whose names begin with `hhsocket.`. Nil by default, for the factory
    /// given to `MetricsSystem.bootstrap`.
    public var metricsFactory: (any MetricsFactory)?
    /// The queue on which delegate callbacks and completion handlers run.
    public var callbackQueue: CallbackQueue = .default
    /// The event loops from which the socket uses one. They must run until the socket has been released, not merely
    /// closed. Nil by default: each socket has its own thread, which ends with it; on Apple platforms that is a queue
    /// of Network.framework. Pass a `MultiThreadedEventLoopGroup` for BSD sockets on Apple platforms, or for several
    /// sockets on one thread.
    public var eventLoopGroup: (any EventLoopGroup)?
    /// The clock of timeouts, heartbeats and back-offs; the system's, except in tests.
    package var time = SocketTime()

    public init(servers: [Endpoint]) {
        self.servers = servers
    }
}
