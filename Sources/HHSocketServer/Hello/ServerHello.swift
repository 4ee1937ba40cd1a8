// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// A server's answer to a client's hello, and its use of the features that both agree on.
public struct ServerHello: Sendable {
    /// The features that may be agreed on. All by default.
    public var features: Set<ProtocolFeature> = [.metadata, .compression, .idempotency]
    /// Whether a client must send hello before it is served. False by default: a client without hello is served without
    /// its features. If true, a request before hello is answered ``/HHSocket/Status/illegalFormat`` (303), and hello
    /// must arrive within 10 s.
    public var isRequired = false
    /// Authenticates a client by the token in its hello, and returns its identity, as for
    /// ``ServerSession/authenticate(as:)``; nil for none. A ``StatusError`` refuses: the hello is answered with that
    /// status, and nothing is agreed on; any other error is logged, and answered 503, and the client is sent away. Nil,
    /// the default: tokens are ignored.
    ///
    /// While it runs or waits for its turn, the client waits for its answer, as long as its own timeout allows. It is
    /// cancelled when the connection ends.
    public var authenticate: (@Sendable (_ token: [UInt8], _ session: ServerSession) async throws -> String?)?
    /// The number of authentications that run at the same time, including those of ``WebSocketListening/authenticate``;
    /// 64 by default, 1 at least. Further ones wait, and addresses take turns. One that ignores its cancellation counts
    /// until it returns. If 4,096 wait already, a client is answered ``/HHSocket/Status/overloaded`` (503), or HTTP's
    /// 503, and sent away for 1 to 5 s at random: one of the address with most, or the newcomer, if its address has as
    /// many.
    public var maximumConcurrentAuthentications = 64
    /// The number of authentications that wait for their turn.
    package var maximumWaitingAuthentications = 4_096
    /// The policy for compressing answers where that was agreed on; nil for none. By default, answers of 1 KiB and more
    /// are compressed.
    public var compression: CompressionPolicy? = CompressionPolicy()
    /// The bounds for keeping answers to requests with an idempotency key.
    public var idempotency = IdempotencyPolicy()

    package init() {}
}
