public import Logging
public import Metrics
import NIOCore

/// How a ``Socket`` connects, stays connected and is bounded.
public struct SocketConfiguration: Sendable {
    /// The servers to choose from; equals are tried in this order.
    public var servers: [Endpoint]
    /// Finds the servers at run time; nil by default: ``servers`` are all. Where it is set, those are used until it has
    /// answered once, and may be none.
    public var resolver: ServerResolver?
    /// When a server is passed over because of how it behaved.
    public var serverPolicy = ServerPolicy()
    /// Attempts at several servers at once; nil by default: one after the other.
    public var racing: RacingPolicy?
    /// TLS; nil by default: what is sent can be read and changed by whoever is on the path.
    public var tls: ClientTLS?
    /// What connects us to the servers; nil by default: nothing stands between. Servers that are Unix domain sockets
    /// are reached without it.
    public var proxy: Proxy?
    /// What must happen on each new connection before anything else leaves; nil by default: nothing.
    public var gate: HandshakeGate?
    /// How long one attempt may take, name resolution, proxy and TLS included. 10 s by default.
    public var connectTimeout: Duration = .seconds(10)
    /// The waits between rounds of attempts.
    public var backoff = Backoff()
    /// How long a connection that was left by choice may take to finish what is in flight. 30 s by default.
    public var drainTimeout: Duration = .seconds(30)
    /// Says whether there is a network, and when its path changes. Without one nothing is attempted, unless a server in
    /// the list is on this machine; on another path a live connection is probed, and what waited connects at once. The
    /// system's by default; nil: only ``Socket/networkDidChange(isReachable:name:)`` says so.
    public var networkMonitor: (any NetworkMonitor)? = SystemNetworkMonitor.shared
    /// What becomes of the connection when the app goes into the background.
    public var backgroundPolicy = BackgroundPolicy.finishTasks
    /// When to ping and when to take the server for dead; nil never pings. A server's pings are answered either way.
    public var heartbeat: HeartbeatPolicy? = HeartbeatPolicy()
    /// Where an adaptive heartbeat remembers what it has learned about each network; for as long as the process runs by
    /// default.
    public var heartbeatStorage: (any HeartbeatStorage)? = InMemoryHeartbeatStorage()
    /// How frames are laid out; the standard format by default. In a format in which clients do not ping, ``heartbeat``
    /// has no effect.
    public var wireFormat = WireFormat.standard
    /// What the format's custom header fields hold, by name, in every frame that does not say otherwise. Fields that
    /// are not named here are zero. With a name that the format does not have, or a value of another width, no
    /// connection is made: the attempts fail with ``SocketError/Code/invalidArgument``.
    public var header: [String: [UInt8]] = [:]
    /// The largest payload received or sent, in bytes. 16 MiB by default.
    public var maximumPayloadLength = Frame.defaultMaximumPayloadLength
    /// The number of consecutive frames with a wrong checksum that ends the connection. 3 by default, 1 at least.
    public var maximumCorruptRun = FrameDecoder.defaultMaximumCorruptRun
    /// How many bytes of frames may wait while the peer does not read; a frame beyond fails with
    /// ``SocketError/Code/queueFull``. One frame may always wait. 64 MiB by default.
    public var maximumQueuedBytes = 64 << 20
    /// When ``Socket/send(_:priority:)`` waits, and when it fails.
    public var writePolicy = WritePolicy()
    /// The connection is lost when bytes wait and fewer than 128 a second reach the server within a window of this
    /// length; one to two windows after they stop, therefore, and never on a link that is just slow. 30 s by default.
    public var writeStallTimeout: Duration = .seconds(30)
    /// Told what happens to the connection, with the metadata `server`, `attempt`, `cause` and `error`, never with
    /// payloads; at `debug` and `trace`, and at `warning` when attempts stop. Nil by default: nothing is logged.
    public var logger: Logger?
    /// Where the connection's metrics go; their names begin with `hhsocket.`. Nil by default: to what
    /// `MetricsSystem.bootstrap` was given.
    public var metricsFactory: (any MetricsFactory)?
    /// Where delegate callbacks and completion handlers run.
    public var callbackQueue: CallbackQueue = .default
    /// The event loops to take one from, which must run until the socket has been released, and not only closed. Nil by
    /// default: each socket has a thread of its own, which ends with it; on Apple platforms that is a queue of
    /// Network.framework's. Pass a `MultiThreadedEventLoopGroup` to have BSD sockets there, or several sockets on one
    /// thread.
    public var eventLoopGroup: (any EventLoopGroup)?

    public init(servers: [Endpoint]) {
        self.servers = servers
    }
}
