// SPDX-License-Identifier: Apache-2.0
#if Outbox
public import HHSocketRPC

/// The decision on a message whose attempt failed.
public struct OutboxVerdict: Hashable, Sendable, CustomStringConvertible {
    private enum Name: String, Hashable, Sendable {
        case `retry`, deadLetter, discard, suspendTopic
    }

    private let name: Name

    private init(_ name: Name) { self.name = name }

    /// The message is sent again after a back-off, with the same key, and its topic waits. After
    /// ``OutboxConfiguration/maximumAttempts`` attempts ``OutboxConfiguration/whenExhausted`` decides.
    public static let `retry` = Self(.retry)
    /// The message is moved to the dead letters, and observers get ``OutboxEvent/deadLettered(_:)``. Its topic
    /// continues.
    public static let deadLetter = Self(.deadLetter)
    /// The message is deleted, and observers get ``OutboxEvent/failed(_:_:)``. Its topic continues. It is never the
    /// default.
    public static let discard = Self(.discard)
    /// The message stays, and its topic is suspended until ``Outbox/resume(topic:)``, the next start, or until the
    /// message expires or is withdrawn. Observers get ``OutboxEvent/suspended(_:_:)``.
    public static let suspendTopic = Self(.suspendTopic)

    public var description: String { self.name.rawValue }

    /// Returns the default verdict, which never deletes a message.
    ///
    /// - No answer, or one that cannot be read: retry. The key makes that harmless.
    /// - The answer's status is transient (``/HHSocket/Status/isTransient``), such as 401, 404, 405 or 503: retry. The
    ///   server does not keep such answers for the key.
    /// - Any other answer but 200: dead letter. The server keeps it for the key, and a retry would get it again.
    /// - The message is too large to be sent: dead letter.
    /// - The client finds an `invalidArgument`: suspend the topic, because the client's configuration may be wrong, and
    ///   not the message.
    public static func standard(for error: SocketError) -> OutboxVerdict {
        switch error.delivery {
        case .notSent where error.code == .frameTooLarge: return .deadLetter
        case .notSent where error.code == .invalidArgument: return .suspendTopic
        case .notSent, .sentUnknown: return .retry
        case .answered: break
        }
        guard let status = error.code.status, !status.isTransient else { return .retry }
        return .deadLetter
    }
}
#endif
