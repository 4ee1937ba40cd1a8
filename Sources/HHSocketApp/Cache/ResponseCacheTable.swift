// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// A table of answers with a maximum cost: the least recently used answers are evicted to make room.
struct ResponseCacheTable: ~Copyable, Sendable {
    /// The divisor of the maximum cost that limits the cost of one answer; a larger one would evict too many others.
    private static let largestShare = 8

    // Not private: the compiler (6.3) fails where another file destroys a noncopyable table of a private type.
    struct Entry {
        var key: ResponseKey
        var response: StoredResponse
        var cost: Int
    }

    let maximumCost: Int
    /// The cost of the answers, in bytes.
    private(set) var cost = 0
    /// The number of answers that were evicted for others.
    private(set) var evictions = 0
    private var slots: [ResponseKey: SlotKey] = [:]
    /// The entries in the order of use.
    private var entries = SlotList<Entry>()

    init(maximumCost: Int) {
        self.maximumCost = max(0, maximumCost)
    }

    var count: Int { self.slots.count }

    /// Returns the answer kept for this key, and notes its use.
    mutating func response(for key: ResponseKey) -> StoredResponse? {
        guard let slot = self.slots[key] else { return nil }
        self.entries.moveToEnd(slot)
        return self.entries[slot]?.response
    }

    /// Keeps an answer in place of the one before, unless it is too large.
    mutating func store(_ response: StoredResponse, for key: ResponseKey) {
        self.remove(key)
        let cost = response.cost(with: key)
        guard cost <= self.maximumCost / Self.largestShare else { return }
        while self.cost > self.maximumCost - cost, let oldest = self.entries.first, let entry = self.entries[oldest] {
            self.remove(entry.key)
            self.evictions += 1
        }
        self.slots[key] = self.entries.append(Entry(key: key, response: response, cost: cost))
        self.cost += cost
    }

    mutating func remove(_ removal: ResponseRemoval) {
        switch removal {
        case .all:
            self.slots.removeAll()
            self.entries = SlotList()
            self.cost = 0
        case .forKey(let key):
            self.remove(key)
        case .ofType, .ofOwner:
            for (key, slot) in self.slots {
                if let entry = self.entries[slot], removal.covers(key, entry.response) { self.remove(key) }
            }
        }
    }

    private mutating func remove(_ key: ResponseKey) {
        guard let slot = self.slots.removeValue(forKey: key), let entry = self.entries.remove(slot) else { return }
        self.cost -= entry.cost
    }
}
