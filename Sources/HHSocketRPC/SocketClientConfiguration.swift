import HHSocket
public import Tracing

extension SocketClient {
    /// How a client connects and calls.
    public struct Configuration: Sendable {
        /// The connection below.
        public var socket: SocketConfiguration
        /// The time that a call may take whose request sets none. 8 s by default, as in the first client of this
        /// protocol.
        public var timeout = Duration.seconds(8)
        /// Calls in flight at most; more fail with `tooManyInFlight`. Those that waited for a connection go on waiting
        /// until they may leave. 1,000,000 by default.
        public var maximumInFlight = 1_000_000
        /// Calls that wait for a connection at most; more fail with `queueFull`. So do more calls than this and
        /// ``maximumInFlight`` together, those included that wait for their next attempt or whose interceptors are at
        /// work. 10,000 by default.
        public var maximumWaiting = 10_000
        /// The number of bytes of bodies and metadata that may wait for a connection; calls beyond it fail with
        /// `queueFull`. One call may always wait. 64 MiB by default.
        public var maximumWaitingBytes = 64 << 20
        /// Whether a call waits, within its timeout, where there is no connection and no attempt in progress; for
        /// requests that do not say. False by default: it fails at once with `notConnected`.
        public var waitsForConnectivity = false
        /// When a server whose calls go wrong is left for another, while there is a network. With one server alone it
        /// is only told (``HHSocket/SocketEvent/serverFails(_:wrong:calls:)``). Nil: never.
        public var errorRatePolicy: ErrorRatePolicy? = ErrorRatePolicy()
        /// The time from when a request was sent until the first byte of its answer arrives, for requests that set
        /// none. Nil by default: as long as the whole call.
        public var firstResponseTimeout: Duration?
        /// Whether calls that fail are sent again, for requests that do not say. Nil by default: they are not.
        public var retryPolicy: RetryPolicy?
        /// The number of retries in all; nil for no bound.
        public var retryBudget: RetryBudget? = RetryBudget()
        /// The interceptors around each call. The first is the outermost: it sees a request first and the answer last.
        /// Retries by ``retryPolicy`` are within the innermost. None by default.
        public var interceptors: [any SocketInterceptor] = []
        /// The tracer with which a span for each call begins; nil, the default, for the one that
        /// `InstrumentationSystem.bootstrap` was given.
        public var tracer: (any Tracer)?
        /// The hello that is sent on each new connection before anything else, to agree on metadata, compression and
        /// the like; before ``HHSocket/SocketConfiguration/gate``, where there is one. Nil, the default, sends none, as
        /// suits any server. In a wire format that has no room for it, every attempt to connect and every call fails
        /// with `invalidArgument`.
        public var hello: HelloPolicy?
        /// Which bodies of requests are compressed, on connections that have agreed on ``ProtocolFeature/compression``;
        /// for requests that do not say (``SocketRequest/compresses``). Nil by default: none.
        public var compression: CompressionPolicy?
        /// The number of serials of timed-out and cancelled calls that are remembered, so that late answers are known
        /// as such. 4,096 by default.
        public var maximumTombstones = 4_096

        public init(servers: [Endpoint]) {
            self.socket = SocketConfiguration(servers: servers)
        }
    }
}
