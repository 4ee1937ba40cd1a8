#if Outbox
public import HHSocketRPC

/// What happened to a message. Cases may be added; have a default when you switch over it.
///
/// Events are of this process's life: one that dies right after an answer tells nobody of it, and the next one finds
/// the message delivered or sends it again, with the same key. What waits is on disk, and ``Outbox/snapshot`` tells it.
public enum OutboxEvent: Sendable {
    /// It is on disk.
    case enqueued(OutboxEntry)
    /// The server answered 200, and the message has been removed from disk. If the removal fails, it is tried again
    /// every 5 seconds, and the event comes when it has succeeded. If the process ends before that, the next one sends
    /// the message again, with the same key.
    case delivered(OutboxEntry, SocketResponse)
    /// The message was given up, and is among the dead letters now: ``Outbox/deadLetters()``.
    case deadLettered(OutboxDeadLetter)
    /// The message was given up for this answer or error, and has been deleted: ``OutboxVerdict/discard``.
    case failed(OutboxEntry, SocketError)
    /// Its time was over, and it has been removed. ``OutboxEntry/mayHaveBeenSent`` says whether the server may have got
    /// it.
    case expired(OutboxEntry)
    /// An attempt failed; the next is due after this delay, or earlier with a new connection where the attempt never
    /// left. A server that has not agreed on idempotency keys is `featureNotAgreed`: nothing is ever sent without a
    /// key.
    case retrying(OutboxEntry, SocketError, after: Duration)
    /// Its topic stands still: ``OutboxVerdict/suspendTopic``, or ``OutboxConfiguration/whenExhausted``.
    case suspended(OutboxEntry, SocketError)
    /// The app withdrew it, and it has been removed.
    case withdrawn(OutboxEntry)
    /// The disk could not be read or written. What was to be removed is tried again; what was to be sent too.
    case storageFailed(OutboxError)
}

extension OutboxEvent: CustomStringConvertible {
    public var description: String {
        switch self {
        case .enqueued(let entry): "enqueued \(entry)"
        case .delivered(let entry, _): "delivered \(entry)"
        case .deadLettered(let letter): "dead letter, \(letter)"
        case .failed(let entry, let error): "failed \(entry): \(error)"
        case .expired(let entry): "expired \(entry)"
        case .retrying(let entry, let error, let delay): "retrying \(entry) in \(delay): \(error)"
        case .suspended(let entry, let error): "suspended by \(entry): \(error)"
        case .withdrawn(let entry): "withdrawn \(entry)"
        case .storageFailed(let error): "storage failed: \(error)"
        }
    }
}

/// What waits in an outbox.
public struct OutboxSnapshot: Sendable, Hashable {
    /// What waits of one topic.
    public struct Topic: Sendable, Hashable {
        /// How many messages, those in flight included.
        public var count: Int
        /// Their ``OutboxEntry/byteCount``.
        public var bytes: Int
        /// Whether one of them is in flight.
        public var isInFlight: Bool
        /// Whether it stands still until the app says otherwise.
        public var isSuspended: Bool
    }

    /// Whether there is a connection.
    public var isConnected: Bool
    /// By name; only those of which something waits.
    public var topics: [String: Topic]
    /// The number of messages that wait, those in flight included.
    public var count: Int
    /// Their ``OutboxEntry/byteCount``.
    public var bytes: Int
    /// The number of dead letters. They are not among ``count``.
    public var deadLetterCount: Int
    /// Their ``OutboxDeadLetter/byteCount``.
    public var deadLetterBytes: Int
}
#endif
