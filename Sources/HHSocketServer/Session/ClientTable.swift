// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers

/// All clients of a server, by number. The table is divided, so that event loops seldom wait for one another, and
/// iterating over all clients blocks none of them for long.
final class ClientTable<Client: Sendable>: Sendable {
    private let shards: [NIOLockedValueBox<[UInt64: Client]>]

    init() {
        self.shards = (0..<256).map { _ in NIOLockedValueBox([:]) }
    }

    private func shard(of id: UInt64) -> NIOLockedValueBox<[UInt64: Client]> {
        self.shards[Int(truncatingIfNeeded: id) & 255]
    }

    func add(_ client: Client, _ id: UInt64) {
        self.shard(of: id).withLockedValue { $0[id] = client }
    }

    func remove(_ id: UInt64) {
        // Released outside the lock.
        let client = self.shard(of: id).withLockedValue { clients in
            let client = clients.removeValue(forKey: id)
            // A dictionary never shrinks.
            if clients.isEmpty { clients = [:] }
            return client
        }
        withExtendedLifetime(client) {}
    }

    subscript(id: UInt64) -> Client? { self.shard(of: id).withLockedValue { $0[id] } }

    /// Every client, in no order. Each shard as it was at one moment.
    var all: [Client] {
        self.shards.flatMap { shard in shard.withLockedValue { Array($0.values) } }
    }
}
