// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocketLink
import NIOConcurrencyHelpers
import NIOCore

/// The buckets of clients whose requests have a rate limit, by address or identity. The time is passed in.
///
/// It holds a bounded number of buckets. A full one contains no information and is removed; if there is no full one,
/// the fullest of a few is removed.
struct RateTable<Key: Hashable & Sendable>: Sendable {
    /// The number of buckets that are examined when one is added: more than one, so that the table shrinks.
    private static var checks: Int { 4 }

    private let rate: RequestRate
    private let maximumCount: Int
    private var buckets: [Key: TokenBucket] = [:]
    /// Each key once, the one that was examined longest ago first.
    private var order: Deque<Key> = []

    /// - Parameter maximumCount: The number of buckets; 1 at least.
    init(_ rate: RequestRate, maximumCount: Int) {
        self.rate = rate
        self.maximumCount = max(1, maximumCount)
    }

    var count: Int { self.buckets.count }

    /// Takes a token of `key`; false if there is none.
    mutating func take(_ key: Key, now: NIODeadline) -> Bool {
        if self.buckets[key] == nil {
            self.makeRoom(now: now)
            self.order.append(key)
            self.buckets[key] = TokenBucket(self.rate, now: now)
        }
        return self.buckets[key]?.take(now: now) ?? true
    }

    private mutating func makeRoom(now: NIODeadline) {
        var fullest: (key: Key, tokens: Double)?
        for _ in 0..<min(Self.checks, self.order.count) {
            guard let key = self.order.popFirst(), let tokens = self.buckets[key]?.tokens(now: now) else { continue }
            if tokens >= Double(self.rate.burst) {
                self.buckets[key] = nil
            } else {
                self.order.append(key)
                if tokens > fullest?.tokens ?? -1 { fullest = (key, tokens) }
            }
        }
        guard self.buckets.count >= self.maximumCount, let key = fullest?.key else { return }
        self.buckets[key] = nil
        // Among the few that were appended.
        if let index = self.order.lastIndex(of: key) { self.order.remove(at: index) }
    }
}

/// A ``RateTable`` that all connections of a server share. Its locks are for a few of the keys each.
final class SharedRates<Key: Hashable & Sendable>: Sendable {
    /// The number of buckets of all shards; one has some hundred bytes.
    static var maximumCount: Int { 1 << 16 }
    private static var shardCount: Int { 16 }

    private let shards: [NIOLockedValueBox<RateTable<Key>>]

    /// Nil if there is no rate.
    init?(_ rate: RequestRate?) {
        guard let rate else { return nil }
        self.shards = (0..<Self.shardCount).map { _ in
            NIOLockedValueBox(RateTable(rate, maximumCount: Self.maximumCount / Self.shardCount))
        }
    }

    /// Takes a token of `key`; false if there is none.
    func take(_ key: Key, now: NIODeadline) -> Bool {
        self.shards.shard(of: key).withLockedValue { $0.take(key, now: now) }
    }
}
