// SPDX-License-Identifier: Apache-2.0
/// A limit on all retries of a client, so that they do not multiply the load of a server in trouble.
///
/// A bucket of tokens that starts full. Each retry takes one, each call that is answered with 200 returns a part of
/// one. While the bucket is empty, calls fail instead of being retried.
public struct RetryBudget: Hashable, Sendable {
    /// The number of tokens that the bucket holds.
    package var capacity: Int
    /// The tokens that an answered call puts back.
    package var deposit: Double

    /// - Parameters:
    ///   - capacity: The number of tokens that the bucket holds; 10 by default. Less than 0 counts as 0: no retry.
    ///   - deposit: The tokens that an answered call puts back, 0 to 1, counted in thousandths: 0.1 by default, so that
    ///     in the long run a tenth of the calls may be retries.
    public init(capacity: Int = 10, deposit: Double = 0.1) {
        self.capacity = capacity
        self.deposit = deposit
    }
}

/// The bucket itself, in thousandths of a token: sums of fractions stay exact.
struct RetryBucket: Sendable {
    private static let token = 1_000

    private let capacity: Int
    private let deposit: Int
    private var level: Int

    init(_ budget: RetryBudget) {
        self.capacity = min(max(0, budget.capacity), .max / Self.token) * Self.token
        let deposit = budget.deposit.isNaN ? 0 : min(max(budget.deposit, 0), 1)
        self.deposit = Int((deposit * Double(Self.token)).rounded())
        self.level = self.capacity
    }

    /// Takes a token; false if there is none.
    mutating func take() -> Bool {
        guard self.level >= Self.token else { return false }
        self.level -= Self.token
        return true
    }

    mutating func callWasAnswered() {
        self.level += min(self.deposit, self.capacity - self.level)
    }
}
