// SPDX-License-Identifier: Apache-2.0
/// A table of answers with a maximum cost: the least recently used answers are evicted to make room.
struct ResponseCacheTable {
    /// The divisor of the maximum cost that limits the cost of one answer; a larger one would evict too many others.
    private static let largestShare = 8

    private struct Entry {
        var key: ResponseKey
        var response: StoredResponse
        var cost: Int
        /// The neighbours in the order of use; -1 where there is none.
        var older = -1
        var newer = -1
    }

    let maximumCost: Int
    /// The cost of the answers, in bytes.
    private(set) var cost = 0
    /// The number of answers that were evicted for others.
    private(set) var evictions = 0
    private var places: [ResponseKey: Int] = [:]
    /// The entries; nil where a place is free.
    private var entries: [Entry?] = []
    private var free: [Int] = []
    private var oldest = -1
    private var newest = -1

    init(maximumCost: Int) {
        self.maximumCost = max(0, maximumCost)
    }

    var count: Int { self.places.count }

    /// Returns the answer kept for this key, and notes its use.
    mutating func response(for key: ResponseKey) -> StoredResponse? {
        guard let place = self.places[key], let entry = self.entries[place] else { return nil }
        self.unlink(place)
        self.link(place)
        return entry.response
    }

    /// Keeps an answer in place of the one before, unless it is too large.
    mutating func store(_ response: StoredResponse, for key: ResponseKey) {
        self.remove(key)
        let cost = response.cost(with: key)
        guard cost <= self.maximumCost / Self.largestShare else { return }
        while self.cost > self.maximumCost - cost, let entry = self.entries[self.oldest] {
            self.remove(entry.key)
            self.evictions += 1
        }
        let entry = Entry(key: key, response: response, cost: cost)
        let place: Int
        if let free = self.free.popLast() {
            place = free
            self.entries[place] = entry
        } else {
            place = self.entries.count
            self.entries.append(entry)
        }
        self.places[key] = place
        self.cost += cost
        self.link(place)
    }

    mutating func remove(_ removal: ResponseRemoval) {
        switch removal.scope {
        case .all:
            self.places.removeAll()
            self.entries.removeAll()
            self.free.removeAll()
            self.oldest = -1
            self.newest = -1
            self.cost = 0
        case .key(let key):
            self.remove(key)
        case .type, .owner:
            for case let entry? in self.entries where removal.covers(entry.key, entry.response) {
                self.remove(entry.key)
            }
        }
    }

    private mutating func remove(_ key: ResponseKey) {
        guard let place = self.places.removeValue(forKey: key), let entry = self.entries[place] else { return }
        self.unlink(place)
        self.cost -= entry.cost
        self.entries[place] = nil
        self.free.append(place)
    }

    /// Links an unlinked entry at the newest end.
    private mutating func link(_ place: Int) {
        self.entries[place]?.older = self.newest
        self.entries[place]?.newer = -1
        if self.newest >= 0 { self.entries[self.newest]?.newer = place } else { self.oldest = place }
        self.newest = place
    }

    private mutating func unlink(_ place: Int) {
        guard let entry = self.entries[place] else { return }
        if entry.older >= 0 { self.entries[entry.older]?.newer = entry.newer } else { self.oldest = entry.newer }
        if entry.newer >= 0 { self.entries[entry.newer]?.older = entry.older } else { self.newest = entry.older }
    }
}
