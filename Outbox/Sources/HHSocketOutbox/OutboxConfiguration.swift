#if Outbox
import HHSocketRPC

/// How an outbox keeps and sends.
public struct OutboxConfiguration: Sendable {
    /// What to do about a file that is damaged.
    public enum CorruptionPolicy: Hashable, Sendable {
        /// The outbox is not opened: ``OutboxError/Code/corrupted``.
        case refuse
        /// The file is renamed, to its name with `.corrupt-` and a number after it, and an empty one takes its place. Nothing is
        /// ever deleted; ``Outbox/setAside`` says where the damaged one is.
        case setAside
    }

    /// So many messages may wait; ``Outbox/enqueue(_:)`` throws `full` beyond. 10,000 by default. What is known of each is held in
    /// memory, but not its body.
    public var maximumCount = 10_000
    /// And so many bytes of them (``OutboxEntry/byteCount``). 64 MiB by default.
    public var maximumBytes = 64 << 20
    /// For how long messages are worth sending that do not say; nil for ever. 7 days by default.
    ///
    /// The server must keep its answers for as long (`IdempotencyPolicy.lifetime`), or a message whose answer was lost may be
    /// run twice.
    public var defaultTimeToLive: Duration? = .seconds(7 * 24 * 60 * 60)
    /// How many topics may have a message in flight at once. 8 by default, 1 at least.
    public var maximumConcurrency = 8
    /// How long one attempt may take. 30 s by default: it counts from when a connection is there.
    public var attemptTimeout = Duration.seconds(30)
    /// The wait of a topic after an attempt that failed: its bound doubles from 1 s to 60 s, and all of it is left to chance, by
    /// default. It begins anew with each message. After an attempt that never left, a new connection ends the wait. Its
    /// `resetAfter` and `maximumRounds` mean nothing here.
    public var backoff = Backoff()
    /// Which of the requests that wait in the client leaves first; `.default` by default.
    public var priority = FramePriority.default
    /// What becomes of a message whose attempt failed; ``OutboxVerdict/standard(for:)`` by default. Called by any thread.
    public var verdict: @Sendable (OutboxEntry, SocketError) -> OutboxVerdict = { OutboxVerdict.standard(for: $1) }
    /// What to do about a file that is damaged; `.refuse` by default.
    public var whenCorrupted = CorruptionPolicy.refuse

    public init() {}
}
#endif
