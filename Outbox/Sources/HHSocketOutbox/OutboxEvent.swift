// SPDX-License-Identifier: Apache-2.0
#if Outbox
public import HHSocketRPC

/// An event of a message. Cases may be added; have a default when you switch over it.
///
/// Events do not survive the process: one that dies right after an answer reports nothing, and the next one finds the
/// message delivered or sends it again, with the same key. ``Outbox/snapshot`` covers all messages that wait on disk.
public enum OutboxEvent: Sendable {
    /// The message is on disk.
    case enqueued(OutboxEntry)
    /// The server answered 200, and the message has been removed from disk. If the removal fails, it is retried every 5
    /// seconds, and the event follows once it has succeeded. If the process ends before that, the next one sends the
    /// message again, with the same key.
    case delivered(OutboxEntry, SocketResponse)
    /// The message was given up, and is now a dead letter: ``Outbox/deadLetters()``.
    case deadLettered(OutboxDeadLetter)
    /// The message was given up for this answer or error, and has been deleted: ``OutboxVerdict/discard``.
    case failed(OutboxEntry, SocketError)
    /// The message has expired, and has been removed. ``OutboxEntry/mayHaveBeenSent`` tells whether the server may have
    /// received it.
    case expired(OutboxEntry)
    /// An attempt failed; the next is due after this delay, or with a new connection if the request was not sent at
    /// all. The error is `featureNotAgreed` if the server has not agreed on idempotency keys: nothing is ever sent
    /// without a key.
    case retrying(OutboxEntry, SocketError, after: Duration)
    /// The message's topic was suspended, by ``OutboxVerdict/suspendTopic`` or ``OutboxConfiguration/whenExhausted``.
    case suspended(OutboxEntry, SocketError)
    /// The app withdrew the message, and it has been removed.
    case withdrawn(OutboxEntry)
    /// The disk could not be read or written. The removal or the attempt is retried.
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

/// The state of an outbox: its waiting messages and its dead letters.
public struct OutboxSnapshot: Sendable, Hashable {
    /// The messages of one topic that wait.
    public struct Topic: Sendable, Hashable {
        /// The number of messages, including one in flight.
        public package(set) var count: Int
        /// The sum of their ``OutboxEntry/byteCount``.
        public package(set) var bytes: Int
        /// Whether one of them is in flight.
        public package(set) var isInFlight: Bool
        /// Whether it is suspended; see ``OutboxVerdict/suspendTopic``.
        public package(set) var isSuspended: Bool
    }

    /// Whether there is a connection.
    public package(set) var isConnected: Bool
    /// The topics of which messages wait, by name.
    public package(set) var topics: [String: Topic]
    /// The number of messages that wait, including those in flight.
    public package(set) var count: Int
    /// The sum of their ``OutboxEntry/byteCount``.
    public package(set) var bytes: Int
    /// The number of dead letters, which ``count`` does not include.
    public package(set) var deadLetterCount: Int
    /// The sum of their ``OutboxDeadLetter/byteCount``.
    public package(set) var deadLetterBytes: Int
}
#endif
