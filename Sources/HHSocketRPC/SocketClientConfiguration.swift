// SPDX-License-Identifier: Apache-2.0
import HHSocket
public import HHSocketMessage
public import Tracing

extension SocketClient {
    /// The configuration of a client's connection and calls.
    public struct Configuration: Sendable {
        /// The connection below.
        public var socket: SocketConfiguration
        /// The time that a call may take if its request sets none. 8 s by default, as in the first client of this
        /// protocol.
        public var timeout = Duration.seconds(8)
        /// The number of calls that may be in flight; further ones fail with `tooManyInFlight`. Those that waited for a
        /// connection keep waiting until they may be sent. 1,000,000 by default.
        public var maximumInFlight = 1_000_000
        /// The number of calls that may wait for a connection; further ones fail with `queueFull`. So does a call
        /// beyond this and ``maximumInFlight`` together, including those that wait for their next attempt or are in
        /// interceptors. 10,000 by default.
        public var maximumWaiting = 10_000
        /// The number of bytes of bodies and metadata that may wait for a connection; calls beyond it fail with
        /// `queueFull`. One call may always wait. 64 MiB by default.
        public var maximumWaitingBytes = 64 << 20
        /// Whether a call waits, within its timeout, if there is no connection and no attempt in progress; for requests
        /// that do not set it. False by default: it fails at once with `notConnected`.
        public var waitsForConnectivity = false
        /// The rate of wrong calls at which the client fails over to another server, while there is a network. With a
        /// single server it only reports ``/HHSocket/SocketEvent/serverFails(_:wrong:calls:)``. Nil: neither.
        public var errorRatePolicy: ErrorRatePolicy? = ErrorRatePolicy()
        /// The time within which the first byte of an answer must arrive after the request was sent, for requests that
        /// set none. Nil by default: as long as the whole call.
        public var firstResponseTimeout: Duration?
        /// The policy for sending failed calls again, for requests that set none. Nil by default: they are not sent
        /// again.
        public var retryPolicy: RetryPolicy?
        /// The limit on all retries of the client; nil for none.
        public var retryBudget: RetryBudget? = RetryBudget()
        /// The interceptors around each call. The first is the outermost: it sees a request first and the answer last.
        /// Retries by ``retryPolicy`` happen within the innermost. None by default.
        public var interceptors: [any SocketInterceptor] = []
        /// The tracer with which a span for each call begins; nil, the default, for the one that
        /// `InstrumentationSystem.bootstrap` was given.
        public var tracer: (any Tracer)?
        /// The hello that is sent on each new connection before anything else, to agree on metadata, compression and
        /// the like; before ``/HHSocket/SocketConfiguration/gate``, where there is one. Nil, the default, sends none,
        /// as suits any server. In a wire format that has no room for it, every attempt to connect and every call fails
        /// with `invalidArgument`.
        public var hello: HelloPolicy?
        /// The limits of streams, which each new connection then asks for by hello; where ``hello`` is nil, a
        /// ``HelloPolicy`` with its defaults says it. Nil, the default, asks for none: every stream then fails with
        /// `featureNotAgreed`. In a wire format that cannot have streams, every attempt to connect and every call fails
        /// with `invalidArgument`.
        public var streams: StreamPolicy?
        /// The policy for compressing the bodies of requests that do not set ``CallOptions/compresses``, on connections
        /// that have agreed on ``/HHSocket/ProtocolFeature/compression``. Nil by default: none are compressed.
        public var compression: CompressionPolicy?
        /// The bounds of messages of typed calls, streams and pushes that are decoded, since their bytes may be a
        /// stranger's; ``/HHSocketMessage/MessageLimits/standard`` by default. Messages of swift-protobuf have a depth
        /// alone.
        public var messageLimits = MessageLimits.standard
        /// The number of serials of timed-out and cancelled calls that are remembered, so that late answers are known
        /// as such. 4,096 by default.
        public var maximumTombstones = 4_096

        public init(servers: [Endpoint]) {
            self.socket = SocketConfiguration(servers: servers)
        }
    }
}
