// SPDX-License-Identifier: Apache-2.0
import Atomics
import NIOConcurrencyHelpers

/// A connection that belongs to an identity, whatever it carries.
protocol IdentifiedConnection: AnyObject, Sendable {
    var id: UInt64 { get }
    /// Closes the connection, soon, because its identity has too many. Any thread.
    func dismiss()
}

/// Which connections are whose.
final class SessionRegistry: Sendable {
    private struct Client {
        var sessions: [UInt64: any IdentifiedConnection] = [:]
        let load: IdentityLoad?
    }

    /// The results of adding a session.
    struct Addition {
        /// The requests of the identity; nil if they are not counted.
        var load: IdentityLoad?
        /// The connection that has to be closed, because there are too many.
        var dismissed: (any IdentifiedConnection)?
    }

    private let maximumSessions: Int?
    private let maximumInFlight: Int?
    private let shards: [NIOLockedValueBox<[String: Client]>]

    /// - Parameters:
    ///   - maximumSessions: The number of sessions of one identity; nil: any.
    ///   - maximumInFlight: The number of requests in flight of one identity; nil: any.
    init(maximumSessions: Int? = nil, maximumInFlight: Int? = nil) {
        self.maximumSessions = maximumSessions
        self.maximumInFlight = maximumInFlight
        self.shards = (0..<64).map { _ in NIOLockedValueBox([:]) }
    }

    private func shard(of identity: String) -> NIOLockedValueBox<[String: Client]> {
        self.shards.shard(of: identity)
    }

    /// Adds a connection. If its identity then has too many, the oldest is removed.
    func add(_ session: any IdentifiedConnection, _ identity: String) -> Addition {
        self.shard(of: identity).withLockedValue { clients in
            var client =
                clients.removeValue(forKey: identity)
                ?? Client(load: self.maximumInFlight.map { IdentityLoad(identity, maximum: $0, registry: self) })
            client.load?.isOrphaned = false
            client.sessions[session.id] = session
            var dismissed: (any IdentifiedConnection)?
            if let maximum = self.maximumSessions, client.sessions.count > maximum,
                let oldest = client.sessions.keys.min()
            {
                dismissed = client.sessions.removeValue(forKey: oldest)
            }
            clients[identity] = client
            return Addition(load: client.load, dismissed: dismissed)
        }
    }

    func remove(_ session: any IdentifiedConnection, _ identity: String) {
        self.shard(of: identity).withLockedValue { clients in
            clients[identity]?.sessions[session.id] = nil
            self.forget(identity, &clients)
        }
    }

    /// Called when the last request of an identity without sessions is over.
    func requestsEnded(of identity: String) {
        self.shard(of: identity).withLockedValue { self.forget(identity, &$0) }
    }

    /// Forgets an identity that has neither sessions nor requests in flight. Requests of handlers that do not end when
    /// they are cancelled count until they do: otherwise a client could reconnect and start the same number again.
    private func forget(_ identity: String, _ clients: inout [String: Client]) {
        guard let client = clients[identity], client.sessions.isEmpty else { return }
        client.load?.isOrphaned = true
        if client.load?.hasRequests != true { clients[identity] = nil }
    }

    /// Returns the connections of an identity, in the order in which they were made.
    func connections(of identity: String) -> [any IdentifiedConnection] {
        self.shard(of: identity).withLockedValue { Array(($0[identity]?.sessions ?? [:]).values) }
            .sorted { $0.id < $1.id }
    }
}

/// The requests in flight of one identity. Any thread.
final class IdentityLoad: Sendable {
    private let identity: String
    private let quota: InFlightQuota
    private let registry: SessionRegistry
    private let orphaned = ManagedAtomic(false)

    init(_ identity: String, maximum: Int, registry: SessionRegistry) {
        self.identity = identity
        self.quota = InFlightQuota(maximum: maximum)
        self.registry = registry
    }

    var hasRequests: Bool { self.quota.count > 0 }

    /// Whether the identity has no session left.
    var isOrphaned: Bool {
        get { self.orphaned.load(ordering: .sequentiallyConsistent) }
        set { self.orphaned.store(newValue, ordering: .sequentiallyConsistent) }
    }

    func start() -> Bool { self.quota.start() }

    func finished() {
        // Counts down first, then checks, while the registry marks first and then counts: one of the two notices.
        if self.quota.finished(), self.isOrphaned { self.registry.requestsEnded(of: self.identity) }
    }
}
