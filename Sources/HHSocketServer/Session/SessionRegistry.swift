import NIOConcurrencyHelpers

/// Which connections are whose.
final class SessionRegistry: Sendable {
    private let sessions = NIOLockedValueBox<[String: [UInt64: ServerSession]]>([:])

    func add(_ session: ServerSession, _ identity: String) {
        self.sessions.withLockedValue { $0[identity, default: [:]][session.id] = session }
    }

    func remove(_ session: ServerSession, _ identity: String) {
        self.sessions.withLockedValue { sessions in
            sessions[identity]?[session.id] = nil
            if sessions[identity]?.isEmpty == true { sessions[identity] = nil }
        }
    }

    /// In the order in which they were made.
    func sessions(of identity: String) -> [ServerSession] {
        self.sessions.withLockedValue { Array(($0[identity] ?? [:]).values) }.sorted { $0.id < $1.id }
    }
}
