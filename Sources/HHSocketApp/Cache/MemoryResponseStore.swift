import NIOConcurrencyHelpers

/// Answers in memory, within a bound: where there is no room for one more, those go that were used least lately.
public final class MemoryResponseStore: ResponseStore {
    /// 20 MB (20,000,000 bytes), as the first client of this protocol had it.
    public static let defaultMaximumCost = 20_000_000

    private let table: NIOLockedValueBox<ResponseCacheTable>

    /// - Parameter maximumCost: How much may be kept, in bytes: bodies, metadata and keys, and what it takes to hold
    ///   them; 20 MB by default. An answer of more than an eighth of it is not kept.
    public init(maximumCost: Int = MemoryResponseStore.defaultMaximumCost) {
        self.table = NIOLockedValueBox(ResponseCacheTable(maximumCost: maximumCost))
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
    public var count: Int { self.table.withLockedValue { $0.count } }
    /// The cost of the answers, in bytes.
    public var cost: Int { self.table.withLockedValue { $0.cost } }
    /// The number of answers that were evicted for others, since the beginning.
    public var evictions: Int { self.table.withLockedValue { $0.evictions } }
}
