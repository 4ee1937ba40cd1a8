// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocketLink
import NIOConcurrencyHelpers
import NIOCore

/// The answers to requests with keys, for each of which the handler runs once. Any thread.
///
/// Requests contend for the lock of their key's part of the window, and the ends of requests for the lock of their
/// owner's part of the shares. So different clients rarely contend.
final class IdempotentAnswers: Sendable {
    private typealias Waiter = CheckedContinuation<KeptAnswer?, Never>
    private typealias Window = NIOLockedValueBox<IdempotencyWindow<Waiter>>

    /// The number of parts that the window has.
    private static let windowCount = 32
    /// The number of parts that the shares have, at most.
    private static let maximumShareCount = 8
    /// The number of answers that a part of the shares may keep, at least.
    private static let smallestShareCount = 1_024

    private let policy: IdempotencyPolicy
    private let time: SocketTime
    private let windows: [Window]
    private let shares: [LockedBox<KeptShares>]
    private let numbers = ManagedAtomic<UInt64>(0)
    private let keptCount = ManagedAtomic(0)
    private let keptBytes = ManagedAtomic(0)

    /// - Parameter time: The clock of lifetimes; the system's by default.
    init(_ policy: IdempotencyPolicy, time: SocketTime = SocketTime()) {
        self.policy = policy
        self.time = time
        self.windows = (0..<Self.windowCount).map { _ in NIOLockedValueBox(IdempotencyWindow()) }
        // Parts must hold the largest share, and must not be so small that chance fills one of them.
        let largest = max(policy.identityShare, policy.addressShare)
        let parts = largest > 0 ? min(1 / largest, Double(Self.maximumShareCount)) : 1
        let count = max(1, min(Int(parts), policy.whole.count / Self.smallestShareCount))
        self.shares = (0..<count).map { _ in LockedBox(KeptShares(policy, part: 1 / Double(count))) }
    }

    /// The answers that are kept, and their cost.
    var kept: IdempotencyPolicy.Amount {
        IdempotencyPolicy.Amount(
            count: self.keptCount.load(ordering: .relaxed),
            bytes: self.keptBytes.load(ordering: .relaxed)
        )
    }

    private func window(of key: IdempotencyKey) -> Window {
        self.windows.shard(of: key)
    }

    private enum Verdict: Sendable {
        case run
        case over(KeptAnswer?)
        case refused(Source)
    }

    /// The origin of an answer.
    enum Source: Sendable {
        case handler
        /// The answer was stored, or another request's handler has returned it.
        case `repeat`
        /// Too many repeats wait for the handler.
        case overload
        /// The key belongs to another request.
        case contradiction
    }

    /// An answer, and the effects on kept answers.
    struct Outcome: Sendable {
        var answer: KeptAnswer
        var source: Source
        /// Whether it is not kept because it is too large.
        var isTooLarge = false
        /// The number of answers that were forgotten before their lifetime was over.
        var forgotten = 0
    }

    /// Returns the first answer to a request.
    ///
    /// - Parameters:
    ///   - request: The fingerprint of the request.
    ///   - owner: The owner that is charged for the answer, if this is the first request.
    ///   - run: Runs the handler, if this is the first request.
    ///   - isKept: Whether an answer is kept for repeats.
    func answer(
        for key: IdempotencyKey,
        request: RequestFingerprint,
        of owner: IdempotencyOwner,
        run: () async -> KeptAnswer,
        isKept: (KeptAnswer) -> Bool
    ) async -> Outcome {
        while true {
            switch await self.verdict(key, request) {
            case .run:
                let answer = await run()
                return self.finish(key, of: owner, with: answer, isKept: isKept(answer), now: self.time.now())
            case .over(let answer?):
                return Outcome(answer: answer, source: .repeat)
            case .over(nil) where Task.isCancelled:
                return Outcome(
                    answer: KeptAnswer(status: .cancelledByServer, body: ByteBuffer(), metadata: [:]),
                    source: .handler
                )
            case .over(nil):
                // The first has no answer: perhaps this request is the next.
                continue
            case .refused(let source):
                let status: Status = source == .overload ? .overloaded : .illegalFormat
                let reason = source == .overload ? "too many repeats wait" : "this key is that of another request"
                return Outcome(
                    answer: KeptAnswer(status: status, body: ByteBuffer(string: reason), metadata: [:]),
                    source: source
                )
            }
        }
    }

    /// Removes answers whose lifetime is over. Otherwise that happens when the next one is kept.
    func forgetExpired(now: NIODeadline) {
        for share in self.shares {
            // In steps, so that additions do not wait for long.
            while case let forgotten = share.withLockedValue({ self.counting(&$0) { $0.expired(now: now) } }),
                !forgotten.isEmpty
            {
                self.forget(forgotten)
            }
        }
    }

    private func finish(
        _ key: IdempotencyKey,
        of owner: IdempotencyOwner,
        with answer: KeptAnswer,
        isKept: Bool,
        now: NIODeadline
    ) -> Outcome {
        var outcome = Outcome(answer: answer, source: .handler)
        var kept = isKept ? answer.compact : nil
        let cost = kept?.cost(key) ?? 0
        if cost > self.policy.largestAnswer(isKnown: owner.isKnown) {
            kept = nil
            outcome.isTooLarge = true
        }
        let number = self.numbers.wrappingIncrementThenLoad(ordering: .relaxed)
        let until = now.advanced(clamping: TimeAmount(clamping: self.policy.lifetime))
        let waiters = self.window(of: key).withLockedValue {
            $0.finish(key, keeping: kept, number: number, until: until)
        }
        if kept != nil {
            let share = self.shares.shard(of: owner)
            let forgotten = share.withLockedValue {
                self.counting(&$0) {
                    $0.add(key, number: number, of: owner, cost: cost, until: until, now: now)
                }
            }
            outcome.forgotten = forgotten.reduce(0) { $0 + ($1.hasExpired ? 0 : 1) }
            self.forget(forgotten)
        }
        // A transient failure also answers the repeats that waited for it: otherwise a thousand repeats would run the
        // handler a thousand times. If the first was cancelled, one of them replaces it.
        let shared = isKept || !Task.isCancelled ? kept ?? answer : nil
        for waiter in waiters { waiter.resume(returning: shared) }
        return outcome
    }

    private func forget(_ forgotten: [KeptShares.Forgotten]) {
        for one in forgotten { self.window(of: one.key).withLockedValue { $0.forget(one.key, one.number) } }
    }

    /// Changes a part of the shares, and updates the counts of kept answers.
    private func counting<Result>(_ shares: inout KeptShares, _ change: (inout KeptShares) -> Result) -> Result {
        let before = shares.amount
        defer {
            let after = shares.amount
            self.keptCount.wrappingIncrement(by: after.count - before.count, ordering: .relaxed)
            self.keptBytes.wrappingIncrement(by: after.bytes - before.bytes, ordering: .relaxed)
        }
        return change(&shares)
    }

    private func verdict(_ key: IdempotencyKey, _ request: RequestFingerprint) async -> Verdict {
        let number = self.numbers.wrappingIncrementThenLoad(ordering: .relaxed)
        let window = self.window(of: key)
        // The decision of the window, if it is not to wait.
        let instead = NIOLockedValueBox<Verdict?>(nil)
        let answer = await withTaskCancellationHandler {
            await withCheckedContinuation { (waiter: Waiter) in
                let answer: KeptAnswer?? = window.withLockedValue { window in
                    switch window.begin(key, request: request, number: number, waiter: waiter, now: self.time.now()) {
                    case .run:
                        instead.withLockedValue { $0 = .run }
                        return .some(nil)
                    case .full:
                        instead.withLockedValue { $0 = .refused(.overload) }
                        return .some(nil)
                    case .contradiction:
                        instead.withLockedValue { $0 = .refused(.contradiction) }
                        return .some(nil)
                    case .answered(let answer):
                        return answer
                    case .wait:
                        guard Task.isCancelled else { return nil }
                        // If it is cancelled later, the handler below finds it.
                        _ = window.abandon(key, number)
                        return .some(nil)
                    }
                }
                if let answer { waiter.resume(returning: answer) }
            }
        } onCancel: {
            window.withLockedValue { $0.abandon(key, number) }?.resume(returning: nil)
        }
        return instead.withLockedValue { $0 } ?? .over(answer)
    }
}
