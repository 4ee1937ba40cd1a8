import HHSocket

/// A server's answer to a client's hello, and its use of the features that both agree on.
public struct ServerHello: Sendable {
    /// The features that may be agreed on. All by default.
    public var features: Set<ProtocolFeature> = [.metadata, .compression, .idempotency]
    /// Whether a client must say hello before it is served. False by default: one that does not is served as before
    /// there was hello. A request before hello is answered ``HHSocket/Status/illegalFormat`` (303), and
    /// ``ServerLimits/firstFrameTimeout`` is for the hello.
    public var isRequired = false
    /// Authenticates a client by the token in its hello; the identity is that of ``ServerSession/authenticate(as:)``,
    /// nil for nobody. A ``StatusError`` refuses: the hello is answered with that status, and nothing is agreed on; any
    /// other error is answered 404, and logged. Nil, the default: tokens are not looked at.
    ///
    /// While it runs the client waits for its answer, as long as its own timeout allows.
    public var authenticate: (@Sendable (_ token: [UInt8], _ session: ServerSession) async throws -> String?)?
    /// Which answers are compressed where that was agreed on; nil: none. Those of 1 KiB and more by default.
    public var compression: CompressionPolicy? = CompressionPolicy()
    /// For how long, and how many, answers to requests with an idempotency key are kept.
    public var idempotency = IdempotencyPolicy()

    public init() {}
}

/// The time that the first answer to a request with an idempotency key is kept for repeats of it, and the memory for
/// that.
///
/// A key is its client's: of the identity where that is known, else of all clients without one, which should use keys
/// that nobody else can guess. Repeats that come while the first is at work wait for its answer. An answer that says
/// that the request was not executed is not kept; nor is what a handler throws after it was cancelled, as by the end of
/// its connection. One that returns all the same has done its work, so its answer is kept.
public struct IdempotencyPolicy: Hashable, Sendable {
    /// 10 minutes by default.
    public var lifetime = Duration.seconds(600)
    /// The largest number of answers kept; the oldest are removed first. 100,000 by default.
    public var maximumCount = 100_000
    /// The largest size of their bodies and metadata together; 64 MiB by default.
    public var maximumBytes = 64 << 20

    public init() {}
}
