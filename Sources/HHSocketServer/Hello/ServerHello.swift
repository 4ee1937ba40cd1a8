import HHSocket

/// A server's answer to a client's hello, and its use of the features that both agree on.
public struct ServerHello: Sendable {
    /// The features that may be agreed on. All by default.
    public var features: Set<ProtocolFeature> = [.metadata, .compression, .idempotency]
    /// Whether a client must say hello before it is served. False by default: a client that does not is served without
    /// the features of hello. If true, a request before hello is answered ``HHSocket/Status/illegalFormat`` (303), and
    /// ``ServerLimits/firstFrameTimeout`` applies to the hello.
    public var isRequired = false
    /// Authenticates a client by the token in its hello, and returns its identity, as for
    /// ``ServerSession/authenticate(as:)``; nil for none. A ``StatusError`` refuses: the hello is answered with that
    /// status, and nothing is agreed on; any other error is logged, and answered 503, and the client is sent away. Nil,
    /// the default: tokens are ignored.
    ///
    /// While it runs or waits for its turn, the client waits for its answer, as long as its own timeout allows. It is
    /// cancelled when the connection ends.
    public var authenticate: (@Sendable (_ token: [UInt8], _ session: ServerSession) async throws -> String?)?
    /// The number of authentications that run at the same time, those of ``WebSocketListening/authenticate`` included;
    /// 64 by default, 1 at least. Further ones wait, and those of each address get their turn. One that ignores its
    /// cancellation counts until it returns.
    public var maximumConcurrentAuthentications = 64
    /// The number of authentications that wait for their turn; 4,096 by default. A client beyond is answered
    /// ``HHSocket/Status/overloaded`` (503), or HTTP's 503, and sent away for 1 to 5 s at random: one of the address
    /// with most, or the newcomer, if its address has as many.
    public var maximumWaitingAuthentications = 4_096
    /// The policy for compressing answers where that was agreed on; nil for none. By default, answers of 1 KiB and more
    /// are compressed.
    public var compression: CompressionPolicy? = CompressionPolicy()
    /// The bounds for keeping answers to requests with an idempotency key.
    public var idempotency = IdempotencyPolicy()

    public init() {}
}

/// The time that the first answer to a request with an idempotency key is kept for repeats of it, and the memory for
/// that.
///
/// A key belongs to its client's identity if that is known, otherwise to all clients without one, which should use keys
/// that others cannot guess. Repeats that arrive while the first is running wait for its answer. An answer that says
/// that the request was not executed is not kept, nor is an error that a handler throws after it was cancelled, as by
/// the end of its connection. A cancelled handler that returns all the same has done its work, so its answer is kept.
public struct IdempotencyPolicy: Hashable, Sendable {
    /// The time that an answer is kept; 10 minutes by default.
    public var lifetime = Duration.seconds(600)
    /// The largest number of answers kept; the oldest are removed first. 100,000 by default.
    public var maximumCount = 100_000
    /// The largest size of their bodies and metadata together; 64 MiB by default.
    public var maximumBytes = 64 << 20

    public init() {}
}
