// SPDX-License-Identifier: Apache-2.0
#if Outbox
public import HHSocketRPC

/// The settings and limits of an outbox.
public struct OutboxConfiguration: Sendable {
    /// The treatment of a damaged file.
    public enum CorruptionPolicy: Hashable, Sendable {
        /// The outbox is not opened: ``OutboxError/Code/corrupted``.
        case refuse
        /// The file is renamed, to its name with `.corrupt-` and a number after it, and an empty one takes its place.
        /// Nothing is deleted; ``Outbox/setAside`` is the path of the damaged one.
        case setAside
    }

    /// The treatment of a message after ``maximumAttempts`` failed attempts.
    public enum ExhaustionPolicy: Hashable, Sendable {
        /// The message is moved to the dead letters, and its topic continues: one message that crashes its handler does
        /// not block the others. The next message is sent although this one was not delivered.
        case deadLetter
        /// The message stays, and its topic is suspended, as with ``OutboxVerdict/suspendTopic``. Choose it if no
        /// message may be sent before its predecessor was delivered.
        case suspendTopic
    }

    /// The owner of the messages, such as the identifier of the user who has signed in; nil, the default, for none. An
    /// empty string is the same as nil.
    ///
    /// Each message is stored with the account under which it was enqueued. Those of other accounts stay in the file,
    /// but are neither sent nor shown; they count towards the limits of their own account. So close the outbox when a
    /// user signs out, and open it with the account of the next: otherwise the messages of one are sent under the
    /// identity of the other.
    public var account: String?
    /// Whether messages that were enqueued without an account are assigned to ``account`` when the outbox opens; false
    /// by default. For an app that begins to use accounts, and knows whose messages are in the file.
    public var adoptsMessagesWithoutAccount = false
    /// The number of messages that may wait; ``Outbox/enqueue(_:)`` throws `full` beyond. 10,000 by default. Each is
    /// held in memory, without its body.
    public var maximumCount = 10_000
    /// The number of bytes (``OutboxEntry/byteCount``) that messages and dead letters may have together;
    /// ``Outbox/enqueue(_:)`` throws `full` beyond. 64 MiB by default.
    public var maximumBytes = 64 << 20
    /// The number of dead letters at which ``Outbox/enqueue(_:)`` throws `deadLettersFull`; 1,000 by default, 1 at
    /// least.
    ///
    /// Dead letters are never deleted to make room. Messages that already wait may still become dead letters beyond it,
    /// so there are never more than this and ``maximumCount`` together.
    public var maximumDeadLetters = 1_000
    /// The number of failed attempts after which ``whenExhausted`` decides on a message; 100 by default, 1 at least,
    /// `Int.max` for no limit.
    ///
    /// An attempt counts if the request was sent, at least in part, and the process lived to see the failure. The count
    /// is on disk, and survives the process. With the default ``backoff`` 100 attempts take about 50 minutes with a
    /// connection, and longer if the server does not answer at all.
    public var maximumAttempts = 100
    /// The treatment of a message after ``maximumAttempts`` failed attempts; `.deadLetter` by default.
    public var whenExhausted = ExhaustionPolicy.deadLetter
    /// The time for which messages without a time to live are worth sending; nil for no limit. 7 days by default.
    ///
    /// The server must keep its answers as long (`IdempotencyPolicy.lifetime`), or a message whose answer was lost may
    /// be run twice.
    public var defaultTimeToLive: Duration? = .seconds(7 * 24 * 60 * 60)
    /// The number of topics that may have a message in flight at once. 8 by default, 1 at least.
    public var maximumConcurrency = 8
    /// The time allowed for one attempt, counted from when there is a connection. 30 s by default.
    public var attemptTimeout = Duration.seconds(30)
    /// The back-off of a topic after a failed attempt: by default its bound doubles from 1 s to 60 s, and all of it is
    /// random. It starts over with each message. If the request was not sent at all, a new connection ends the wait.
    /// `resetAfter` and `maximumRounds` have no effect here.
    public var backoff = Backoff()
    /// The priority of the requests among those that wait in the client; `.default` by default.
    public var priority = FramePriority.default
    /// Decides on a message whose attempt failed; ``OutboxVerdict/standard(for:)`` by default. Called on any thread.
    public var verdict: @Sendable (OutboxEntry, SocketError) -> OutboxVerdict = { OutboxVerdict.standard(for: $1) }
    /// The treatment of a damaged file; `.refuse` by default.
    public var whenCorrupted = CorruptionPolicy.refuse

    public init() {}
}
#endif
