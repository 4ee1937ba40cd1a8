// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The cost of the answers that are kept for repeats, by owner; decides which answers to remove. The time is passed in.
///
/// Every answer is in two lists, that of its owner and that of all, from the oldest to the newest. So the oldest of
/// either is found and removed in constant time. Owners are in levels by the amount that they hold, each of which is a
/// list in which they take turns: an owner that holds most, within a factor of two, is found as quickly.
struct KeptShares {
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

    private struct Record {
        var key: IdempotencyKey
        var number: UInt64
        var owner: IdempotencyOwner
        var cost: Int
        var until: NIODeadline
        /// The next newer one of its owner, -1 for none; of a free place the next free one.
        var ownersNext = -1
        /// Its neighbours among all.
        var older = -1
        var newer = -1
    }

    private struct Holding {
        var amount = Amount()
        var oldest = -1
        var newest = -1
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
    private var records: [Record] = []
    private var firstFree = -1
    private var oldest = -1
    private var newest = -1
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
        while let holding = self.holdings[owner], Self.exceeds(holding.amount, share) {
            forgotten.append(self.forget(holding.oldest))
        }
        while let owner = self.ownerToLose, let holding = self.holdings[owner] {
            forgotten.append(self.forget(holding.oldest))
            self.takeTurn(owner)
        }
        return forgotten
    }

    private static func exceeds(_ amount: Amount, _ limit: Amount) -> Bool {
        amount.count > limit.count || amount.bytes > limit.bytes
    }

    /// Removes expired answers, ``maximumExpirations`` of them at most.
    mutating func expired(now: NIODeadline) -> [Forgotten] {
        var forgotten: [Forgotten] = []
        while self.oldest >= 0, self.records[self.oldest].until <= now, forgotten.count < Self.maximumExpirations {
            forgotten.append(self.forget(self.oldest, hasExpired: true))
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
        var record = record
        record.older = self.newest
        let index: Int
        if self.firstFree >= 0 {
            index = self.firstFree
            self.firstFree = self.records[index].ownersNext
            self.records[index] = record
        } else {
            index = self.records.count
            self.records.append(record)
        }
        if self.newest >= 0 { self.records[self.newest].newer = index } else { self.oldest = index }
        self.newest = index
        var holding = self.holdings[record.owner] ?? Holding()
        if holding.newest >= 0 { self.records[holding.newest].ownersNext = index } else { holding.oldest = index }
        holding.newest = index
        self.change(record.owner, &holding, count: 1, bytes: record.cost)
        self.holdings[record.owner] = holding
    }

    /// Removes a record, which is its owner's oldest.
    private mutating func forget(_ index: Int, hasExpired: Bool = false) -> Forgotten {
        let record = self.records[index]
        if record.older >= 0 {
            self.records[record.older].newer = record.newer
        } else {
            self.oldest = record.newer
        }
        if record.newer >= 0 {
            self.records[record.newer].older = record.older
        } else {
            self.newest = record.older
        }
        if var holding = self.holdings[record.owner] {
            holding.oldest = record.ownersNext
            if holding.oldest < 0 { holding.newest = -1 }
            self.change(record.owner, &holding, count: -1, bytes: -record.cost)
            self.holdings[record.owner] = holding.amount.count > 0 ? holding : nil
        }
        let forgotten = Forgotten(key: record.key, number: record.number, hasExpired: hasExpired)
        if self.holdings.isEmpty {
            // After a burst the memory is released with the last answer.
            self.records = []
            self.firstFree = -1
            self.holdings = [:]
        } else {
            // Releases everything that it held.
            self.records[index] = Record(
                key: IdempotencyKey(key: ""),
                number: 0,
                owner: .local,
                cost: 0,
                until: .distantPast,
                ownersNext: self.firstFree
            )
            self.firstFree = index
        }
        return forgotten
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
    private mutating func takeTurn(_ owner: IdempotencyOwner) {
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
