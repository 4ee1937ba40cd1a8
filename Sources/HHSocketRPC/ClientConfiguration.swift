// SPDX-License-Identifier: Apache-2.0
import HHSocket
public import HHSocketMessage
public import Tracing

/// The configuration of a client's connection and calls.
public struct ClientConfiguration: Sendable {
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
    /// The rate of failed calls at which the client fails over to another server, while there is a network. With a
    /// single server it only reports ``/HHSocket/SocketEvent/serverFails(_:wrong:calls:)``. Nil disables both.
    public var errorRatePolicy: ErrorRatePolicy? = ErrorRatePolicy()
    /// The time within which the first byte of an answer must arrive after the request was sent, for requests that
    /// set none. Nil by default: limited only by the call's timeout.
    public var firstResponseTimeout: Duration?
    /// The policy for sending failed calls again, for requests that set none. Nil by default: they are not sent
    /// again.
    public var retryPolicy: RetryPolicy?
    /// The limit on all retries of the client; nil for none.
    public var retryBudget: RetryBudget? = RetryBudget()
    /// The interceptors around each call. The first is the outermost: it sees a request first and the answer last.
    /// Retries by ``retryPolicy`` happen within the innermost. None by default.
    public var interceptors: [any SocketInterceptor] = []
    /// The tracer that begins a span for each call; nil, the default, for the one given to
    /// `InstrumentationSystem.bootstrap`.
    public var tracer: (any Tracer)?
    /// The hello that is sent first on each new connection, to agree on metadata, compression and other features;
    /// before ``/HHSocket/SocketConfiguration/gate``, if there is one. Nil, the default, sends none, which suits
    /// any server. In a wire format that cannot carry it, every attempt to connect and every call fails with
    /// `invalidArgument`.
    public var hello: HelloPolicy?
    /// The limits of streams, which each new connection then requests by hello; if ``hello`` is nil, a default
    /// ``HelloPolicy`` is used. Nil, the default, requests none: every stream then fails with `featureNotAgreed`.
    /// In a wire format that cannot carry streams, every attempt to connect and every call fails with
    /// `invalidArgument`.
    public var streams: StreamPolicy?
    /// The policy for compressing the bodies of requests that do not set ``CallOptions/compresses``, on connections
    /// that have agreed on ``/HHSocket/ProtocolFeature/compression``. Nil by default: none are compressed.
    public var compression: CompressionPolicy?
    /// The bounds for decoding messages of typed calls, streams and pushes, since their bytes may not be trusted;
    /// ``/HHSocketMessage/MessageLimits/standard`` by default. Only the depth applies to swift-protobuf's messages.
    public var messageLimits = MessageLimits.standard
    /// The number of serials of timed-out and cancelled calls that are remembered, so that late answers are
    /// recognised.
    package var maximumTombstones = 4_096

    public init(servers: [Endpoint]) {
        self.socket = SocketConfiguration(servers: servers)
    }
}
