#if Outbox
import HHSocketRPC

/// What becomes of a message whose attempt failed.
public struct OutboxVerdict: Hashable, Sendable, CustomStringConvertible {
    private enum Name: String, Hashable, Sendable {
        case `retry`, discard, suspendTopic
    }

    private let name: Name

    private init(_ name: Name) { self.name = name }

    /// It is sent again after a back-off, with the same key, and its topic waits.
    public static let `retry` = Self(.retry)
    /// It is removed, and observers are told by ``OutboxEvent/failed(_:_:)``. Its topic goes on.
    public static let discard = Self(.discard)
    /// It stays, and its topic stands still until ``Outbox/resume(topic:)``, the next start, or until the message expires or is
    /// withdrawn. Observers are told by ``OutboxEvent/suspended(_:_:)``.
    public static let suspendTopic = Self(.suspendTopic)

    public var description: String { self.name.rawValue }

    /// What is done by default.
    ///
    /// - Where no answer came, or one that cannot be read: retry. The key makes it harmless.
    /// - Answers that servers do not keep for a key, because they ran nothing or want it again: 300, 302, 408, 409, 503, 504:
    ///   retry.
    /// - Any other answer but 200: discard. The server has it for this key, and would only say it again: the message has been
    ///   dealt with, if not as one would like. Who would rather keep it has the topic suspended.
    /// - What cannot leave at all: a message that is too large is discarded. `invalidArgument` suspends its topic, because it
    ///   may be the client's configuration that is wrong, and not the message.
    public static func standard(for error: SocketError) -> OutboxVerdict {
        switch error.delivery {
        case .notSent where error.code == .frameTooLarge: return .discard
        case .notSent where error.code == .invalidArgument: return .suspendTopic
        case .notSent, .sentUnknown: return .retry
        case .answered: break
        }
        guard let status = error.code.status else { return .retry }
        let unkept: [Status] = [
            .serverLostConnection, .lostPacket, .deadlineExceeded, .cancelledByServer, .overloaded, .draining,
        ]
        return unkept.contains(status) ? .retry : .discard
    }
}
#endif
