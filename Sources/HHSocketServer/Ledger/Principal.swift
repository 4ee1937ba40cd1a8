// SPDX-License-Identifier: Apache-2.0
import Atomics
import NIOConcurrencyHelpers

/// An address or an identity, to which the connections of a client belong.
final class Principal: Sendable {
    enum Key: Hashable, Sendable {
        case address(ClientAddress)
        case identity(String)
    }

    let key: Key
    private let held = ManagedAtomic(0)

    fileprivate init(_ key: Key) {
        self.key = key
    }

    /// The number of bytes that are held for its connections.
    var bytes: Int { self.held.load(ordering: .relaxed) }

    func add(_ change: Int) {
        self.held.wrappingIncrement(by: change, ordering: .relaxed)
    }
}

/// The principals that have connections.
final class Principals: Sendable {
    private struct Entry {
        var principal: Principal
        /// The number of accounts that belong to it.
        var users: Int
    }

    private static let shardCount = 16

    /// Shards by hash, so that connections that begin and end rarely wait for each other.
    private let shards = (0..<Principals.shardCount).map { _ in NIOLockedValueBox<[Principal.Key: Entry]>([:]) }

    private func shard(_ key: Principal.Key) -> NIOLockedValueBox<[Principal.Key: Entry]> {
        self.shards.shard(of: key)
    }

    /// Returns the principal for one more account, until ``release(_:)``.
    func enter(_ key: Principal.Key) -> Principal {
        self.shard(key).withLockedValue { entries in
            if let index = entries.index(forKey: key) {
                entries.values[index].users += 1
                return entries.values[index].principal
            }
            let principal = Principal(key)
            entries[key] = Entry(principal: principal, users: 1)
            return principal
        }
    }

    func release(_ principal: Principal) {
        self.shard(principal.key).withLockedValue { entries in
            guard let index = entries.index(forKey: principal.key) else { return }
            entries.values[index].users -= 1
            if entries.values[index].users == 0 { entries.remove(at: index) }
        }
    }

    var count: Int { self.shards.reduce(0) { $0 + $1.withLockedValue { $0.count } } }
}
