// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// A store of answers in memory, with a maximum cost: the least recently used answers are evicted to make room.
public final class MemoryResponseStore: ResponseStore {
    /// The memory that answers may take by default, in bytes: as in the first client of this protocol.
    @usableFromInline package static let defaultMaximumCost = 20_000_000

    private let table: LockedBox<ResponseCacheTable>

    /// - Parameter maximumCost: The memory that the answers may take, in bytes: bodies, metadata and keys, with
    ///   overhead; 20 MB by default. An answer that takes more than an eighth of it is not kept.
    public init(maximumCost: Int = MemoryResponseStore.defaultMaximumCost) {
        self.table = LockedBox(ResponseCacheTable(maximumCost: maximumCost))
    }

    public func response(for key: ResponseKey) async -> StoredResponse? {
        self.table.withLockedValue { $0.response(for: key) }
    }

    public func store(_ response: StoredResponse, for key: ResponseKey) async {
        self.table.withLockedValue { $0.store(response, for: key) }
    }

    public func remove(_ removal: ResponseRemoval) async {
        self.table.withLockedValue { $0.remove(removal) }
    }

    /// The number of answers.
    package var count: Int { self.table.withLockedValue { $0.count } }
    /// The cost of the answers, in bytes.
    package var cost: Int { self.table.withLockedValue { $0.cost } }
    /// The number of answers that were evicted for others, since the beginning.
    package var evictions: Int { self.table.withLockedValue { $0.evictions } }
}
