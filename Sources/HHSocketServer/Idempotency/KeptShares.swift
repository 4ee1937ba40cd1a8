// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// The cost of the answers that are kept for repeats, by owner; decides which answers to remove. The time is passed in.
///
/// Every answer is in two lists, that of its owner and that of all, from the oldest to the newest. So the oldest of
/// either is found and removed in constant time. Owners are in levels by the amount that they hold, each of which is a
/// list in which they alternate: an owner that holds most, within a factor of two, is found as quickly.
struct KeptShares: ~Copyable, Sendable {
    typealias Amount = IdempotencyPolicy.Amount

    /// An answer to remove.
    struct Forgotten: Hashable {
        var key: IdempotencyKey
        var number: UInt64
        /// Whether its lifetime is over; otherwise it had to make room.
        var hasExpired: Bool
    }

    /// The number of expired answers that one addition removes, so that none takes long.
    static let maximumExpirations = 64

    // Not private: the compiler (6.3) fails where another file destroys a noncopyable table of a private type.
    struct Record {
        var key: IdempotencyKey
        var number: UInt64
        var owner: IdempotencyOwner
        var cost: Int
        var until: NIODeadline
        /// The next newer one of its owner.
        var ownersNext: SlotKey?
    }

    private struct Holding {
        var amount = Amount()
        var oldest: SlotKey?
        var newest: SlotKey?
        var level = 0
        /// Its neighbours in the level.
        var before: IdempotencyOwner?
        var after: IdempotencyOwner?
    }

    /// Owners that hold about the same.
    private struct Level {
        var first: IdempotencyOwner?
        var last: IdempotencyOwner?
    }

    /// The owners with an identity, or those without.
    private struct Group {
        var amount = Amount()
        var levels = Array(repeating: Level(), count: Int.bitWidth + 1)
    }

    private let whole: Amount
    private let policy: IdempotencyPolicy
    /// The records of all answers, the oldest first.
    private var records = SlotList<Record>()
    private var holdings: [IdempotencyOwner: Holding] = [:]
    private var known = Group()
    private var anonymous = Group()

    /// - Parameter part: The part of the policy's total to use, 1 being the whole. An owner's share is relative to the
    ///   whole.
    init(_ policy: IdempotencyPolicy, part: Double = 1) {
        self.policy = policy
        self.whole = policy.whole.part(part)
    }

    /// The amount that is kept in total.
    var amount: Amount {
        Amount(
            count: self.known.amount.count + self.anonymous.amount.count,
            bytes: self.known.amount.bytes + self.anonymous.amount.bytes
        )
    }

    /// The answers of one owner.
    func amount(of owner: IdempotencyOwner) -> Amount { self.holdings[owner]?.amount ?? Amount() }

    /// The owners that have answers.
    var ownerCount: Int { self.holdings.count }

    /// Adds an answer that costs no more than ``IdempotencyPolicy/largestAnswer(isKnown:)`` allows.
    ///
    /// - Returns: The answers to remove for it; the new one itself if nothing may be kept.
    mutating func add(
        _ key: IdempotencyKey,
        number: UInt64,
        of owner: IdempotencyOwner,
        cost: Int,
        until: NIODeadline,
        now: NIODeadline
    ) -> [Forgotten] {
        var forgotten = self.expired(now: now)
        self.append(Record(key: key, number: number, owner: owner, cost: cost, until: until))
        let share = self.policy.share(isKnown: owner.isKnown)
        while let holding = self.holdings[owner], Self.exceeds(holding.amount, share),
            let lost = self.forget(holding.oldest)
        {
            forgotten.append(lost)
        }
        while let owner = self.ownerToLose, let lost = self.forget(self.holdings[owner]?.oldest) {
            forgotten.append(lost)
            self.moveToEnd(owner)
        }
        return forgotten
    }

    private static func exceeds(_ amount: Amount, _ limit: Amount) -> Bool {
        amount.count > limit.count || amount.bytes > limit.bytes
    }

    /// Removes expired answers, ``maximumExpirations`` of them at most.
    mutating func expired(now: NIODeadline) -> [Forgotten] {
        var forgotten: [Forgotten] = []
        while let oldest = self.records.first, let record = self.records[oldest], record.until <= now,
            forgotten.count < Self.maximumExpirations, let one = self.forget(oldest, hasExpired: true)
        {
            forgotten.append(one)
        }
        return forgotten
    }

    /// The owner that loses its oldest answer, if all together exceed the limit: the one that holds most among those
    /// with an identity, or among those without, whichever use more than half.
    private var ownerToLose: IdempotencyOwner? {
        let amount = self.amount
        let isAnonymousTooMuch: Bool
        if amount.bytes > self.whole.bytes {
            isAnonymousTooMuch = self.anonymous.amount.bytes > self.whole.bytes / 2
        } else if amount.count > self.whole.count {
            isAnonymousTooMuch = self.anonymous.amount.count > self.whole.count / 2
        } else {
            return nil
        }
        let levels = isAnonymousTooMuch ? self.anonymous.levels : self.known.levels
        return levels.last { $0.first != nil }?.first
    }

    /// The level of an owner, by its bytes, where each answer counts at least with its part of the whole.
    private func level(of amount: Amount) -> Int {
        let each = self.whole.count > 0 ? self.whole.bytes / self.whole.count : 0
        let (product, hasOverflown) = amount.count.multipliedReportingOverflow(by: each)
        let weight = max(amount.bytes, hasOverflown ? .max : product, 0)
        return Int.bitWidth - weight.leadingZeroBitCount
    }

    // MARK: The lists

    private mutating func append(_ record: Record) {
        let slot = self.records.append(record)
        var holding = self.holdings[record.owner] ?? Holding()
        if let newest = holding.newest {
            self.records.with(newest) { $0.ownersNext = slot }
        } else {
            holding.oldest = slot
        }
        holding.newest = slot
        self.change(record.owner, &holding, count: 1, bytes: record.cost)
        self.holdings[record.owner] = holding
    }

    /// Removes a record, which is its owner's oldest.
    private mutating func forget(_ slot: SlotKey?, hasExpired: Bool = false) -> Forgotten? {
        guard let slot, let record = self.records.remove(slot) else { return nil }
        if var holding = self.holdings[record.owner] {
            holding.oldest = record.ownersNext
            if holding.oldest == nil { holding.newest = nil }
            self.change(record.owner, &holding, count: -1, bytes: -record.cost)
            self.holdings[record.owner] = holding.amount.count > 0 ? holding : nil
        }
        // After a burst the memory is released with the last answer.
        if self.holdings.isEmpty { self.holdings = [:] }
        return Forgotten(key: record.key, number: record.number, hasExpired: hasExpired)
    }

    // MARK: Levels

    /// Changes the amount of an owner, and moves it to its level.
    private mutating func change(_ owner: IdempotencyOwner, _ holding: inout Holding, count: Int, bytes: Int) {
        let isNew = holding.amount.count == 0
        holding.amount.count += count
        holding.amount.bytes += bytes
        self.withGroup(of: owner) {
            $0.amount.count += count
            $0.amount.bytes += bytes
        }
        let level = self.level(of: holding.amount)
        let isGone = holding.amount.count == 0
        guard isNew || isGone || level != holding.level else { return }
        if !isNew { self.unlink(owner, &holding) }
        if !isGone { self.link(owner, &holding, at: level) }
    }

    /// Moves an owner behind the others of its level.
    private mutating func moveToEnd(_ owner: IdempotencyOwner) {
        guard var holding = self.holdings[owner], holding.after != nil else { return }
        self.unlink(owner, &holding)
        self.link(owner, &holding, at: holding.level)
        self.holdings[owner] = holding
    }

    private mutating func link(_ owner: IdempotencyOwner, _ holding: inout Holding, at level: Int) {
        let last = self.withGroup(of: owner) { group in
            defer { group.levels[level].last = owner }
            if group.levels[level].first == nil { group.levels[level].first = owner }
            return group.levels[level].last
        }
        if let last { self.holdings[last]?.after = owner }
        holding.level = level
        holding.before = last
        holding.after = nil
    }

    private mutating func unlink(_ owner: IdempotencyOwner, _ holding: inout Holding) {
        let (level, before, after) = (holding.level, holding.before, holding.after)
        self.withGroup(of: owner) {
            if before == nil { $0.levels[level].first = after }
            if after == nil { $0.levels[level].last = before }
        }
        if let before { self.holdings[before]?.after = after }
        if let after { self.holdings[after]?.before = before }
        holding.before = nil
        holding.after = nil
    }

    private mutating func withGroup<Result>(of owner: IdempotencyOwner, _ body: (inout Group) -> Result) -> Result {
        owner.isKnown ? body(&self.known) : body(&self.anonymous)
    }
}
