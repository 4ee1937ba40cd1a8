// SPDX-License-Identifier: Apache-2.0
import Atomics
import Foundation
import HHSocketLink
import NIOConcurrencyHelpers
import NIOCore

/// The accounts of everything that clients make a server hold, in bytes of memory, by connection, address, identity and
/// in total.
///
/// The connection that holds most is closed before requests are refused: from ``evictionShare`` of the limit on, a
/// separate thread closes connections until less is held. Only if that does not help in time, the limit itself is
/// reached, and requests are refused: those of connections that hold little only a sixteenth above it.
final class Ledger: Sendable {
    /// The share of the limit above which connections are closed, and the share at which that ends.
    private static let evictionShare = (begin: 7.0 / 8, end: 3.0 / 4)
    /// The time between two checks of whether enough connections were asked to close.
    private static let evictionInterval = 0.02
    /// The number of consecutive intervals, 10 s, after which memory that was not released no longer counts as free.
    private static let maximumRounds = 500
    /// A connection that holds no more than this is not closed to free memory.
    static let harmlessBytes = 32 << 10
    /// The share of the limit by which connections that hold little may exceed it.
    private static let reserveShare = 1.0 / 16
    /// The share of the limit up to which a connection holds little.
    private static let littleShare = 1.0 / 256

    private struct Shard {
        var accounts: [ObjectIdentifier: LedgerAccount] = [:]
    }

    let maximumBytes: Int
    let maximumBytesPerConnection: Int
    let principals = Principals()
    private let maximumInFlight: Int
    private let sum: ShardedSum
    private let requests: ShardedSum
    private let baseCosts: ShardedSum
    /// The number of descriptors that connections have.
    let descriptors = ManagedAtomic(0)
    /// The number of TLS handshakes that are under way.
    let handshakes = ManagedAtomic(0)
    private let shards: [NIOLockedValueBox<Shard>]
    private let isEvicting = ManagedAtomic(false)
    private let isOver = ManagedAtomic(false)
    /// The number of bytes that are held for the server itself.
    private let standing = ManagedAtomic(0)
    private let thread = BlockingThreads(count: 1)
    private let memory = NIOLockedValueBox(MemoryReturn())
    /// The approximate largest number of bytes that were held since the last check.
    private let height = ManagedAtomic(0)
    /// Likewise since ``takePeak()``.
    private let peak = ManagedAtomic(0)
    /// The number of bytes since then that were freed without having been charged.
    private let freed = ManagedAtomic(0)
    let time: SocketTime

    /// - Parameters:
    ///   - shards: The number of event loops.
    ///   - time: The clock of stalls; the system's by default.
    init(_ limits: ServerLimits, shards count: Int, time: SocketTime = SocketTime()) {
        self.time = time
        self.maximumBytes = limits.maximumBufferedBytes
        self.maximumBytesPerConnection = limits.maximumBufferedBytesPerConnection
        self.maximumInFlight = limits.maximumInFlight
        // Together they may be wrong by a thirty-second of the limit.
        self.sum = ShardedSum(shards: count, step: min(256 << 10, limits.maximumBufferedBytes / (32 * max(1, count))))
        self.requests = ShardedSum(shards: count, step: min(64, limits.maximumInFlight / (32 * max(1, count))))
        self.baseCosts = ShardedSum(shards: count, step: 1 << 20)
        self.shards = (0..<max(1, count)).map { _ in NIOLockedValueBox(Shard()) }
    }

    /// Stops closing connections.
    func end() {
        self.isOver.store(true, ordering: .relaxed)
        self.thread.shutdown()
        // They refer to the ledger.
        for shard in self.shards {
            let accounts = shard.withLockedValue { shard in
                defer { shard.accounts = [:] }
                return shard.accounts
            }
            withExtendedLifetime(accounts) {}
        }
    }

    // MARK: Accounts

    func opened(_ account: LedgerAccount, shard: Int, baseCost: Int) {
        self.shards[shard].withLockedValue { $0.accounts[ObjectIdentifier(account)] = account }
        self.baseCosts.add(baseCost, shard: shard)
    }

    func closed(_ account: LedgerAccount, shard: Int, baseCost: Int) {
        let removed = self.shards[shard].withLockedValue { $0.accounts.removeValue(forKey: ObjectIdentifier(account)) }
        self.baseCosts.add(-baseCost, shard: shard)
        // Outside the lock: it may be the last reference.
        withExtendedLifetime(removed) {}
    }

    /// The base cost of an account has changed.
    func baseCostChanged(by change: Int, shard: Int) { self.baseCosts.add(change, shard: shard) }

    private var accounts: [LedgerAccount] {
        self.shards.flatMap { shard in shard.withLockedValue { Array($0.accounts.values) } }
    }

    // MARK: Bytes

    /// Charges memory for the server itself, such as answers to idempotency keys. On one thread at a time.
    func setStandingBytes(_ bytes: Int) {
        let change = bytes - self.standing.exchange(bytes, ordering: .relaxed)
        guard change != 0 else { return }
        self.add(change, shard: 0)
        self.baseCosts.add(change, shard: 0)
    }

    /// The number of bytes that are held, connections included.
    var bytes: Int { self.sum.exactValue }
    /// The part of these bytes that connections cost by themselves, and that are held for the server itself.
    var connectionBytes: Int { self.baseCosts.exactValue }

    /// Returns the largest number of bytes that were held since the last call, nearly. For tests: they would miss it if
    /// they checked ``bytes`` every few milliseconds.
    func takePeak() -> Int { max(self.bytes, self.peak.exchange(0, ordering: .relaxed)) }

    /// Whether more bytes are held than may be.
    var isFull: Bool { self.sum.value > self.maximumBytes }

    /// Whether more bytes are held than may be for a connection that holds this number of them besides its own cost.
    /// One that holds little is not refused for what others are read once more before they are closed.
    func isFull(forOneThatHolds bytes: @autoclosure () -> Int) -> Bool {
        let excess = self.sum.value - self.maximumBytes
        guard excess > 0 else { return false }
        return excess > self.share(Self.reserveShare) || bytes() > max(Self.harmlessBytes, self.share(Self.littleShare))
    }

    private func share(_ share: Double) -> Int { Int(Double(self.maximumBytes) * share) }

    func add(_ change: Int, shard: Int) {
        guard self.sum.add(change, shard: shard), change > 0 else { return }
        let value = self.sum.value
        if value > self.height.load(ordering: .relaxed) { self.height.store(value, ordering: .relaxed) }
        if value > self.peak.load(ordering: .relaxed) { self.peak.store(value, ordering: .relaxed) }
        if self.isNearlyFull { self.beginEvicting() }
    }

    // MARK: Requests

    var requestsInFlight: Int { self.requests.exactValue }

    /// Admits one more request, until ``finishedRequest(shard:)``; false if the limit is reached.
    func startRequest(shard: Int) -> Bool {
        guard self.requests.value < self.maximumInFlight else { return false }
        self.requests.add(1, shard: shard)
        return true
    }

    func finishedRequest(shard: Int) {
        self.requests.add(-1, shard: shard)
    }

    // MARK: Eviction

    /// Whether connections are being closed to free memory.
    var isClosingConnections: Bool { self.isEvicting.load(ordering: .relaxed) }

    /// Records that a connection has freed reserved memory, which is not charged.
    func freed(_ bytes: Int) {
        if bytes > 0 { self.freed.wrappingIncrement(by: bytes, ordering: .relaxed) }
    }

    /// Closes connections if too much is held, and returns unneeded memory to the system. Must be
    /// called periodically, on a thread that may be delayed, even if nothing changes.
    func check() {
        if self.isNearlyFull { self.beginEvicting() }
        // The largest amount between two checks counts, too.
        let height = self.height.exchange(0, ordering: .relaxed)
        let freed = self.freed.exchange(0, ordering: .relaxed)
        let isDue = self.memory.withLockedValue {
            $0.isDue(bytes: self.bytes, height: height, freed: freed, now: self.time.now())
        }
        if isDue { FreeMemory.giveBack() }
    }

    /// Whether so much is held that connections are closed.
    var isNearlyFull: Bool {
        self.sum.value > self.share(Self.evictionShare.begin)
    }

    private func beginEvicting() {
        guard !self.isEvicting.load(ordering: .relaxed), !self.isOver.load(ordering: .relaxed),
            !self.isEvicting.exchange(true, ordering: .relaxed)
        else { return }
        self.thread.submit { [self] in
            self.evict()
            self.isEvicting.store(false, ordering: .relaxed)
        }
    }

    /// Closes connections until less is held.
    ///
    /// The memory of those that were asked to close counts as free, however slowly they release it: a client that does
    /// not close its side, or a handler that does not return, must not have others closed in their place.
    private func evict() {
        let target = self.share(Self.evictionShare.end)
        var condemned: [LedgerAccount] = []
        for _ in 0..<Self.maximumRounds {
            let held = self.bytes
            guard held > target, !self.isOver.load(ordering: .relaxed) else { return }
            let excess = held - target - condemned.reduce(0) { $0 + $1.bytes }
            if excess > 0 {
                let victims = self.victims(toFree: excess)
                // No connection can release anything: handlers of closed connections hold the memory.
                guard !victims.isEmpty || !condemned.isEmpty else { return }
                for account in victims { account.condemn() }
                condemned += victims
            }
            Thread.sleep(forTimeInterval: Self.evictionInterval)
        }
    }

    private func victims(toFree bytes: Int) -> [LedgerAccount] {
        let now = self.time.now()
        let candidates = self.accounts.compactMap { account in account.standing(now: now).map { (account, $0) } }
        return Standing.victims(
            among: candidates.map(\.1),
            toFree: bytes,
            holdingMoreThan: Self.harmlessBytes
        )
        .map { candidates[$0].0 }
    }
}
