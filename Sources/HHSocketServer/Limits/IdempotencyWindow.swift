import DequeModule
import HHSocket
import HHSocketHello
import NIOCore

/// What a request with an idempotency key was answered.
struct KeptAnswer: Sendable {
    var status: Status
    var body: ByteBuffer
    var metadata: [String: String]

    /// What it takes to keep, in bytes.
    var cost: Int { self.body.readableBytes + WireMetadata.length(of: self.metadata) }
}

/// Names a request among all that the server gets.
struct IdempotencyKey: Hashable, Sendable {
    /// Whose key it is; nil: nobody's who is known.
    var identity: String?
    var type: UInt32
    var key: String
}

/// The first answers to requests with keys. Told the time; keeps none itself.
///
/// `Waiter` is whatever waits for the first answer.
struct IdempotencyWindow<Waiter> {
    enum Beginning {
        /// It is the first: run it, and tell ``finish(_:_:now:)``.
        case run
        /// The first is at work.
        case wait
        case answered(KeptAnswer)
    }

    enum Entry {
        case running(waiters: [UInt64: Waiter])
        /// The number tells it from another of the same key.
        case kept(KeptAnswer, UInt64)
    }

    private let policy: IdempotencyPolicy
    private var entries: [IdempotencyKey: Entry] = [:]
    /// Kept answers, oldest first.
    private var ages: Deque<(key: IdempotencyKey, number: UInt64, until: NIODeadline)> = []
    private var lastNumber: UInt64 = 0
    private(set) var keptBytes = 0

    init(_ policy: IdempotencyPolicy) {
        self.policy = policy
    }

    var keptCount: Int { self.ages.count }

    /// A request has come.
    ///
    /// - Parameters:
    ///   - number: Names the waiter, for ``abandon(_:_:)``.
    ///   - waiter: Kept if it is to wait.
    mutating func begin(_ key: IdempotencyKey, number: UInt64, _ waiter: Waiter, now: NIODeadline) -> Beginning {
        self.forget(now: now)
        switch self.entries[key] {
        case nil:
            self.entries[key] = .running(waiters: [:])
            return .run
        case .running(var waiters):
            waiters[number] = waiter
            self.entries[key] = .running(waiters: waiters)
            return .wait
        case .kept(let answer, _):
            return .answered(answer)
        }
    }

    /// The first is answered.
    ///
    /// - Parameter answer: Nil if there is none, or it is not to be kept: the next repeat is a first.
    /// - Returns: Who has waited for it.
    mutating func finish(_ key: IdempotencyKey, _ answer: KeptAnswer?, now: NIODeadline) -> [Waiter] {
        guard case .running(let waiters) = self.entries[key] else { return [] }
        self.entries[key] = nil
        if let answer {
            self.lastNumber += 1
            self.entries[key] = .kept(answer, self.lastNumber)
            self.ages.append((key, self.lastNumber, now.advanced(clamping: TimeAmount(self.policy.lifetime))))
            self.keptBytes += answer.cost
        }
        self.forget(now: now)
        return Array(waiters.values)
    }

    /// A repeat waits no longer. Nil if it did not.
    mutating func abandon(_ key: IdempotencyKey, _ number: UInt64) -> Waiter? {
        guard case .running(var waiters) = self.entries[key], let waiter = waiters.removeValue(forKey: number) else {
            return nil
        }
        self.entries[key] = .running(waiters: waiters)
        return waiter
    }

    private mutating func forget(now: NIODeadline) {
        while let oldest = self.ages.first,
            oldest.until <= now || self.ages.count > self.policy.maximumCount
                || self.keptBytes > self.policy.maximumBytes
        {
            self.ages.removeFirst()
            guard case .kept(let answer, oldest.number) = self.entries[oldest.key] else { continue }
            self.entries[oldest.key] = nil
            self.keptBytes -= answer.cost
        }
    }
}

extension IdempotencyWindow: Sendable where Waiter: Sendable {}
extension IdempotencyWindow.Entry: Sendable where Waiter: Sendable {}
