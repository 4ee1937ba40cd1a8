// SPDX-License-Identifier: Apache-2.0
/// The time for which the first answer to a request with an idempotency key is kept for its repeats, and the memory for
/// that.
///
/// A key belongs to its client's identity if that is known, otherwise to all clients without one, which should use keys
/// that others cannot guess. Repeats that arrive while the first request is running wait for its answer. An answer that
/// means that the request was not executed is not kept, nor is an error that a handler throws after it was cancelled,
/// for example by the end of its connection. A cancelled handler that returns nevertheless has done its work, so its
/// answer is kept.
///
/// An answer counts with its memory: the capacity of its body's buffer, its metadata, its key, and 512 bytes. It
/// belongs to the identity whose request caused it, or to the address of the connection if there is no identity (an
/// IPv6 address counts with its network of 64 bits; all clients of Unix domain sockets are one). An identity may use a
/// 16th of the whole, an address a 64th: an owner that makes more requests than its share can hold loses its own oldest
/// answers. If all shares together exceed the whole, the owner that holds most loses its oldest; clients without an
/// identity then never take more than half from those with one, and vice versa. An answer that costs more than 1 MiB,
/// or than its owner's share, is not kept: a later repeat runs the handler again.
public struct IdempotencyPolicy: Hashable, Sendable {
    /// The time for which an answer is kept; 10 minutes by default.
    public var lifetime = Duration.seconds(600)
    /// The largest number of answers kept. 100,000 by default.
    public var maximumCount = 100_000
    /// The memory that they cost together, in bytes. 64 MiB by default.
    public var maximumBytes = 64 << 20
    /// The part of ``maximumCount`` and ``maximumBytes`` that the answers of one identity may use, from 0 (none are
    /// kept) to 1.
    package var identityShare = 1.0 / 16
    /// The part that the answers to one address of clients without an identity may use. It is less, because an attacker
    /// gets further addresses more easily than further accounts.
    package var addressShare = 1.0 / 64
    /// The largest cost of an answer that is kept, in bytes; never more than its owner's share.
    /// ``ServerCounter/idempotentAnswersTooLarge`` counts larger ones.
    package var maximumAnswerBytes = 1 << 20

    package init() {}
}

extension IdempotencyPolicy {
    /// A number of answers and their cost.
    struct Amount: Hashable, Sendable {
        var count = 0
        var bytes = 0

        /// - Parameter share: From 0 to 1.
        func part(_ share: Double) -> Amount {
            Amount(count: Self.part(share, of: self.count), bytes: Self.part(share, of: self.bytes))
        }

        private static func part(_ share: Double, of whole: Int) -> Int {
            guard share > 0, whole > 0 else { return 0 }
            return share >= 1 ? whole : min(whole, Int(exactly: (Double(whole) * share).rounded(.down)) ?? whole)
        }
    }

    var whole: Amount { Amount(count: max(0, self.maximumCount), bytes: max(0, self.maximumBytes)) }

    /// The most that one owner may keep.
    func share(isKnown: Bool) -> Amount { self.whole.part(isKnown ? self.identityShare : self.addressShare) }

    /// The largest cost of an answer that is kept.
    func largestAnswer(isKnown: Bool) -> Int { min(self.maximumAnswerBytes, self.share(isKnown: isKnown).bytes) }
}
