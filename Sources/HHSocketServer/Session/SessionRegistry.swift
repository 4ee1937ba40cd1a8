import NIOConcurrencyHelpers

/// Which connections are whose.
final class SessionRegistry: Sendable {
    private typealias Sessions = [String: [UInt64: ServerSession]]

    /// By identity, so that event loops do not wait for one another when many clients come or go.
    private let shards = (0..<16).map { _ in NIOLockedValueBox<Sessions>([:]) }

    private func shard(of identity: String) -> NIOLockedValueBox<Sessions> {
        self.shards[Int(UInt(bitPattern: identity.hashValue) % UInt(self.shards.count))]
    }

    func add(_ session: ServerSession, _ identity: String) {
        self.shard(of: identity).withLockedValue { $0[identity, default: [:]][session.id] = session }
    }

    func remove(_ session: ServerSession, _ identity: String) {
        self.shard(of: identity).withLockedValue { sessions in
            sessions[identity]?[session.id] = nil
            if sessions[identity]?.isEmpty == true { sessions[identity] = nil }
        }
    }

    /// In the order in which they were made.
    func sessions(of identity: String) -> [ServerSession] {
        self.shard(of: identity).withLockedValue { Array(($0[identity] ?? [:]).values) }.sorted { $0.id < $1.id }
    }
}
