// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
private let ann = IdempotencyOwner.identity("ann")
private let bob = IdempotencyOwner.identity("bob")

/// Clients without an identity at 192.0.2.`number`.
private func stranger(_ number: Int) throws -> IdempotencyOwner {
    let address = try SocketAddress(ipAddress: "192.0.\(2 + number / 256).\(number % 256)", port: 1)
    return .address(try #require(ClientAddress(address)))
}

@Suite struct KeptSharesTests: ~Copyable {
    /// A total of ten answers or 10,000 bytes, of which an identity may have half and an address a fifth.
    private static func policy(_ change: (inout IdempotencyPolicy) -> Void = { _ in }) -> IdempotencyPolicy {
        var policy = IdempotencyPolicy()
        policy.lifetime = .seconds(60)
        policy.maximumCount = 10
        policy.maximumBytes = 10_000
        policy.identityShare = 0.5
        policy.addressShare = 0.2
        change(&policy)
        return policy
    }

    private var shares = KeptShares(Self.policy())
    private var number: UInt64 = 0

    /// Returns the names of the forgotten answers.
    @discardableResult private mutating func add(
        _ name: String,
        of owner: IdempotencyOwner,
        cost: Int = 100,
        now: NIODeadline = start
    ) -> [String] {
        number += 1
        let key = IdempotencyKey(key: name)
        return shares.add(key, number: number, of: owner, cost: cost, until: now + .seconds(60), now: now)
            .map { $0.key.key + ($0.hasExpired ? " in time" : "") }
    }

    @Test mutating func clientWithTooManyAnswersLosesItsOldest() {
        add("bob's", of: bob)
        for number in 1...5 { #expect(add("\(number)", of: ann) == []) }
        #expect(add("6", of: ann) == ["1"])
        #expect(add("7", of: ann, cost: 4_850) == ["2", "3", "4", "5"])
        #expect(shares.amount(of: ann) == .init(count: 2, bytes: 4_950))
        #expect(shares.amount(of: bob) == .init(count: 1, bytes: 100))
        #expect(shares.amount == .init(count: 3, bytes: 5_050))
    }

    @Test mutating func strangersHaveASmallerShareEach() throws {
        add("known", of: ann)
        let one = try stranger(1)
        add("1", of: one)
        add("2", of: one)
        #expect(add("3", of: one) == ["1"])
        #expect(add("4", of: try stranger(2)) == [])
        #expect(shares.ownerCount == 3)
    }

    /// A crowd of addresses displaces none of the identities' answers, like a single address.
    @Test mutating func crowdOfStrangersTakesNoMoreThanHalf() throws {
        for number in 1...5 { add("ann's \(number)", of: ann) }
        for number in 1...1_000 {
            let forgotten = add("\(number)", of: try stranger(number))
            #expect(forgotten.allSatisfy { !$0.hasPrefix("ann") })
        }
        #expect(shares.amount(of: ann).count == 5)
        #expect(shares.amount.count == 10)
        #expect(shares.ownerCount == 6)
    }

    /// A crowd of identities cannot displace the answers of clients without one.
    @Test mutating func crowdOfIdentitiesTakesNoMoreThanHalf() throws {
        for number in 1...5 { add("stranger's \(number)", of: try stranger(number)) }
        for number in 1...1_000 {
            let forgotten = add("\(number)", of: .identity("\(number)"))
            #expect(forgotten.allSatisfy { !$0.hasPrefix("stranger") })
        }
        #expect(shares.amount.count == 10)
    }

    @Test mutating func largestHolderLosesAnswersFirst() {
        for number in 1...4 { add("ann's \(number)", of: ann) }
        for number in 1...5 { add("bob's \(number)", of: bob, cost: 900) }
        #expect(add("a", of: .identity("carl")) == [])
        #expect(add("b", of: .identity("dave")) == ["bob's 1"])
        // Owners with about equal amounts take turns.
        #expect(add("c", of: .identity("eve")) == ["ann's 1"])
        #expect(add("d", of: .identity("fay")) == ["bob's 2"])
        #expect(add("e", of: .identity("guy")) == ["ann's 2"])
        #expect(shares.amount.count == 10)
    }

    /// In a full crowd a newcomer's answer is not the first to be forgotten.
    @Test mutating func newcomersAreNotTheFirstToGo() throws {
        for number in 1...5 { add("ann's \(number)", of: ann) }
        for number in 1...5 { add("\(number)", of: try stranger(number)) }
        #expect(add("new", of: try stranger(6)) == ["1"])
        #expect(add("newer", of: try stranger(7)) == ["2"])
        #expect(shares.amount(of: try stranger(6)).count == 1)
    }

    @Test mutating func answersAreForgottenInTime() throws {
        add("a", of: ann)
        add("b", of: try stranger(1), now: start + .seconds(1))
        add("c", of: ann, now: start + .seconds(2))
        #expect(add("d", of: bob, now: start + .seconds(61)) == ["a in time", "b in time"])
        #expect(shares.expired(now: start + .seconds(62)).map(\.key.key) == ["c"])
        #expect(shares.expired(now: start + .seconds(121)).map(\.key.key) == ["d"])
        #expect(shares.amount == .init())
        #expect(shares.ownerCount == 0)
    }

    @Test mutating func noAdditionForgetsManyForTheirTime() {
        shares = KeptShares(Self.policy { $0.maximumCount = 1_000 })
        for number in 1...200 { add("\(number)", of: .identity("\(number)"), cost: 1) }
        #expect(add("late", of: ann, now: start + .seconds(60)).count == KeptShares.maximumExpirations)
        #expect(shares.amount.count == 201 - KeptShares.maximumExpirations)
    }

    @Test(
        arguments: [
            { $0.identityShare = 0 }, { $0.identityShare = -1 }, { $0.identityShare = .nan }, { $0.maximumCount = 0 },
            { $0.maximumBytes = -7 },
        ] as [@Sendable (inout IdempotencyPolicy) -> Void]
    )
    func nothingIsKeptWhereNothingMayBe(change: @Sendable (inout IdempotencyPolicy) -> Void) {
        var shares = KeptShares(Self.policy(change))
        let forgotten = shares.add(
            IdempotencyKey(key: "a"),
            number: 1,
            of: ann,
            cost: 1,
            until: start + .seconds(1),
            now: start
        )
        #expect(forgotten.map(\.key.key) == ["a"])
        #expect(shares.amount == .init())
    }

    @Test func sharesOfHugeBoundsAreNoTrap() {
        let policy = Self.policy {
            $0.maximumBytes = .max
            $0.maximumCount = .max
            $0.identityShare = 0.999_999_999_999_999_9
            $0.addressShare = .infinity
        }
        #expect(policy.share(isKnown: true).bytes > .max / 2)
        #expect(policy.share(isKnown: false) == policy.whole)
        var shares = KeptShares(policy)
        for cost in [1, .max / 4] {
            _ = shares.add(IdempotencyKey(key: "a"), number: 1, of: ann, cost: cost, until: start, now: start)
        }
    }

    // MARK: Random histories

    /// A simple model to compare with: lists that are searched.
    private struct Reference {
        struct One: Equatable {
            var number: UInt64
            var owner: IdempotencyOwner
            var cost: Int
            var until: NIODeadline
        }

        let policy: IdempotencyPolicy
        var kept: [One] = []

        func amount(_ isCounted: (One) -> Bool = { _ in true }) -> IdempotencyPolicy.Amount {
            let counted = self.kept.filter(isCounted)
            return .init(count: counted.count, bytes: counted.reduce(0) { $0 + $1.cost })
        }

        private func isTooMuch(_ amount: IdempotencyPolicy.Amount, _ limit: IdempotencyPolicy.Amount) -> Bool {
            amount.count > limit.count || amount.bytes > limit.bytes
        }

        /// An owner's share of the total.
        private func weight(_ owner: IdempotencyOwner) -> Int {
            let amount = self.amount { $0.owner == owner }
            return max(amount.bytes, amount.count * (self.policy.maximumBytes / self.policy.maximumCount))
        }

        /// Adds an answer, and removes the forgotten ones in order. Returns an error, if there is one.
        mutating func add(_ one: One, forgotten: [KeptShares.Forgotten], now: NIODeadline) -> String? {
            var isAdded = false
            for other in forgotten {
                if !other.hasExpired, !isAdded {
                    isAdded = true
                    self.kept.append(one)
                }
                guard let index = self.kept.firstIndex(where: { $0.number == other.number }) else {
                    return "\(other.number) was not there"
                }
                let victim = self.kept[index]
                if other.hasExpired {
                    guard victim.until <= now, index == 0 else { return "\(other.number) is not the oldest" }
                } else {
                    guard self.kept.first(where: { $0.owner == victim.owner }) == victim else {
                        return "\(other.number) is not its owner's oldest"
                    }
                    if let wrong = self.reason(against: victim) { return wrong }
                }
                self.kept.remove(at: index)
            }
            if !isAdded { self.kept.append(one) }
            guard !self.isTooMuch(self.amount(), self.policy.whole) else { return "more is kept than may be" }
            let share = self.policy.share(isKnown: one.owner.isKnown)
            guard !self.isTooMuch(self.amount { $0.owner == one.owner }, share) else { return "a share is exceeded" }
            let late = self.kept.filter { $0.until <= now }.count
            guard late == 0 || forgotten.count >= KeptShares.maximumExpirations else { return "\(late) are too old" }
            return nil
        }

        /// The reason why it is not this answer's turn to be forgotten; nil if it is.
        private func reason(against victim: One) -> String? {
            let share = self.policy.share(isKnown: victim.owner.isKnown)
            if self.isTooMuch(self.amount { $0.owner == victim.owner }, share) { return nil }
            guard self.isTooMuch(self.amount(), self.policy.whole) else { return "nobody had to go" }
            let group = self.amount { $0.owner.isKnown == victim.owner.isKnown }
            let other = self.amount { $0.owner.isKnown != victim.owner.isKnown }
            guard
                group.bytes >= self.policy.maximumBytes / 2 || group.count >= self.policy.maximumCount / 2
                    || other.count == 0
            else { return "those like \(victim.owner) had less than half" }
            let owners = Set(self.kept.map(\.owner)).filter { $0.isKnown == victim.owner.isKnown }
            let most = owners.map { self.weight($0) }.max() ?? 0
            guard self.weight(victim.owner) * 2 > most else { return "another holds more than twice as much" }
            return nil
        }
    }

    @Test func randomHistoriesKeepWhatAListWouldKeep() throws {
        var owners: [IdempotencyOwner] = (0..<6).map { .identity("\($0)") } + [.local]
        for number in 0..<20 { owners.append(try stranger(number)) }
        for seed in 0..<UInt64(scaled(300)) {
            var random = SeededGenerator(seed: seed)
            let policy = Self.policy {
                $0.maximumCount = Int.random(in: 1...60, using: &random)
                $0.maximumBytes = Int.random(in: 1_000...20_000, using: &random)
                $0.identityShare = Double.random(in: 0.1...1, using: &random)
                $0.addressShare = Double.random(in: 0.05...0.5, using: &random)
                $0.lifetime = .seconds(Int.random(in: 1...100, using: &random))
            }
            var shares = KeptShares(policy)
            var reference = Reference(policy: policy)
            var now = start
            for number in 1...UInt64(200) {
                now = now + .milliseconds(Int64.random(in: 0...2_000, using: &random))
                let owner = try #require(owners.randomElement(using: &random))
                let largest = policy.largestAnswer(isKnown: owner.isKnown)
                guard largest > 0, policy.share(isKnown: owner.isKnown).count > 0 else { continue }
                let one = Reference.One(
                    number: number,
                    owner: owner,
                    cost: Int.random(in: 1...largest, using: &random),
                    until: now + TimeAmount(clamping: policy.lifetime)
                )
                let forgotten = shares.add(
                    IdempotencyKey(key: "\(number)"),
                    number: number,
                    of: owner,
                    cost: one.cost,
                    until: one.until,
                    now: now
                )
                if let wrong = reference.add(one, forgotten: forgotten, now: now) {
                    Issue.record("seed \(seed), addition \(number): \(wrong)")
                    return
                }
                #expect(shares.amount == reference.amount(), "seed \(seed), addition \(number)")
                #expect(shares.amount(of: owner) == reference.amount { $0.owner == owner })
                #expect(shares.ownerCount == Set(reference.kept.map(\.owner)).count)
            }
        }
    }
}
