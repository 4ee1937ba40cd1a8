#if Outbox
public import HHSocketRPC

/// How an outbox keeps and sends.
public struct OutboxConfiguration: Sendable {
    /// What to do about a file that is damaged.
    public enum CorruptionPolicy: Hashable, Sendable {
        /// The outbox is not opened: ``OutboxError/Code/corrupted``.
        case refuse
        /// The file is renamed, to its name with `.corrupt-` and a number after it, and an empty one takes its place.
        /// Nothing is ever deleted; ``Outbox/setAside`` says where the damaged one is.
        case setAside
    }

    /// What to do about a message of which ``maximumAttempts`` attempts have failed.
    public enum ExhaustionPolicy: Hashable, Sendable {
        /// The message is moved to the dead letters, and its topic continues: one message that crashes its handler does
        /// not hold the others back. The next message leaves although this one was not delivered.
        case deadLetter
        /// The message stays, and its topic stands still, as with ``OutboxVerdict/suspendTopic``. Choose it where no
        /// message may leave before its predecessor was delivered.
        case suspendTopic
    }

    /// Whose messages these are, such as the identifier of the user who has signed in; nil, the default, for nobody's.
    /// An empty string is the same as nil.
    ///
    /// Each message is stored with the account under which it was enqueued. Those of other accounts stay in the file,
    /// but are neither sent nor shown; they count towards the bounds of their own account. So close the outbox when a
    /// user signs out, and open it with the account of the next: otherwise the messages of the one leave under the
    /// identity of the other.
    public var account: String?
    /// Whether messages that were enqueued without an account become those of ``account`` when the outbox opens; false
    /// by default. It is for an app that begins to use accounts, and knows whose messages are in the file.
    public var adoptsMessagesWithoutAccount = false
    /// The number of messages that may wait; ``Outbox/enqueue(_:)`` throws `full` beyond. 10,000 by default. What is
    /// known of each is held in memory, but not its body.
    public var maximumCount = 10_000
    /// The number of bytes (``OutboxEntry/byteCount``) that messages and dead letters may have together;
    /// ``Outbox/enqueue(_:)`` throws `full` beyond. 64 MiB by default.
    public var maximumBytes = 64 << 20
    /// The number of dead letters from which on ``Outbox/enqueue(_:)`` throws `deadLettersFull`; 1,000 by default, 1 at
    /// least.
    ///
    /// Dead letters are never deleted to make room. Messages that wait already still become dead letters beyond it, so
    /// there are never more than this and ``maximumCount`` together.
    public var maximumDeadLetters = 1_000
    /// The number of attempts that may fail before a message is given up, as ``whenExhausted`` says; 100 by default, 1
    /// at least, `Int.max` for no limit.
    ///
    /// An attempt counts if the request left, at least in part, and the process lived to see the failure. The count is
    /// on disk, and survives the process. With the default ``backoff`` 100 attempts take about 50 minutes during which
    /// there is a connection, and longer if the server does not answer at all.
    public var maximumAttempts = 100
    /// What to do about a message of which ``maximumAttempts`` attempts have failed; `.deadLetter` by default.
    public var whenExhausted = ExhaustionPolicy.deadLetter
    /// For how long messages are worth sending that do not say; nil for ever. 7 days by default.
    ///
    /// The server must keep its answers for as long (`IdempotencyPolicy.lifetime`), or a message whose answer was lost
    /// may be run twice.
    public var defaultTimeToLive: Duration? = .seconds(7 * 24 * 60 * 60)
    /// How many topics may have a message in flight at once. 8 by default, 1 at least.
    public var maximumConcurrency = 8
    /// How long one attempt may take. 30 s by default: it counts from when a connection is there.
    public var attemptTimeout = Duration.seconds(30)
    /// The wait of a topic after an attempt that failed: its bound doubles from 1 s to 60 s, and all of it is left to
    /// chance, by default. It begins anew with each message. After an attempt that never left, a new connection ends
    /// the wait. Its `resetAfter` and `maximumRounds` mean nothing here.
    public var backoff = Backoff()
    /// Which of the requests that wait in the client leaves first; `.default` by default.
    public var priority = FramePriority.default
    /// What becomes of a message whose attempt failed; ``OutboxVerdict/standard(for:)`` by default. Called by any
    /// thread.
    public var verdict: @Sendable (OutboxEntry, SocketError) -> OutboxVerdict = { OutboxVerdict.standard(for: $1) }
    /// What to do about a file that is damaged; `.refuse` by default.
    public var whenCorrupted = CorruptionPolicy.refuse

    public init() {}
}
#endif
