import DequeModule
import HHSocket
import NIOCore

/// The answer to a request with an idempotency key.
struct KeptAnswer: Sendable {
    var status: Status
    var body: ByteBuffer
    var metadata: [String: String]
}

/// The identity of a request among all that the server receives.
struct IdempotencyKey: Hashable, Sendable {
    /// The client identity that the key belongs to; nil for clients without one.
    var identity: String?
    var key: String
}

/// The fingerprint that distinguishes a request from another with the same key.
struct RequestFingerprint: Hashable, Sendable {
    var type: UInt32
    /// SHA-256 of the body, decompressed.
    var body: [UInt8]

    init(type: UInt32, body: ByteBuffer) {
        self.type = type
        self.body = body.withUnsafeReadableBytes { SHA256.hash(of: $0) }
    }
}

/// The first answers to requests with keys. The time is passed in.
///
/// `Waiter` is any representation of a repeat that waits for the first answer. To add or remove one takes no longer if
/// many wait for one key.
struct IdempotencyWindow<Waiter> {
    enum Beginning {
        /// The request is the first: run it, and report its end to ``finish(_:_:now:)``.
        case run
        /// The first is running.
        case wait
        case answered(KeptAnswer)
        /// The first is running, and ``maximumWaiters`` wait for it already.
        case full
        /// Another request has this key.
        case contradiction
    }

    struct Entry {
        let request: RequestFingerprint
        var waiters: [UInt64: Waiter] = [:]
        var kept: Kept?
    }

    struct Kept {
        var answer: KeptAnswer
        /// The number that distinguishes it from another with the same key.
        var number: UInt64
        /// The memory that keeping it costs, in bytes.
        var cost: Int
    }

    /// The number of repeats that may wait for the answer to one key.
    static var maximumWaiters: Int { 1_024 }
    /// The cost of an answer beside its body, its metadata and its key, in bytes: the entries in two tables and a
    /// fingerprint.
    static var overhead: Int { 256 }

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

    /// Begins a request, or makes it wait.
    ///
    /// - Parameters:
    ///   - request: The fingerprint of the request, to which the key is bound.
    ///   - number: The number of the waiter, for ``abandon(_:_:)``.
    ///   - waiter: The waiter, kept if the request must wait.
    mutating func begin(
        _ key: IdempotencyKey,
        _ request: RequestFingerprint,
        number: UInt64,
        _ waiter: Waiter,
        now: NIODeadline
    ) -> Beginning {
        self.forget(now: now)
        guard let index = self.entries.index(forKey: key) else {
            self.entries[key] = Entry(request: request)
            return .run
        }
        // Changed in place: a copy of the entry would copy all waiters each time.
        guard self.entries.values[index].request == request else { return .contradiction }
        if let kept = self.entries.values[index].kept { return .answered(kept.answer) }
        guard self.entries.values[index].waiters.count < Self.maximumWaiters else { return .full }
        self.entries.values[index].waiters[number] = waiter
        return .wait
    }

    /// Records the end of the first request.
    ///
    /// - Parameter answer: The answer to keep; nil if there is none, so that the next repeat is a first.
    /// - Returns: The repeats that have waited for it.
    mutating func finish(_ key: IdempotencyKey, _ answer: KeptAnswer?, now: NIODeadline) -> [Waiter] {
        guard let entry = self.entries[key], entry.kept == nil else { return [] }
        self.entries[key] = nil
        if let answer {
            self.lastNumber += 1
            let cost = Self.cost(of: answer, key)
            let kept = Kept(answer: answer, number: self.lastNumber, cost: cost)
            self.entries[key] = Entry(request: entry.request, kept: kept)
            self.ages.append((key, self.lastNumber, now.advanced(clamping: TimeAmount(clamping: self.policy.lifetime))))
            self.keptBytes += cost
        }
        self.forget(now: now)
        return Array(entry.waiters.values)
    }

    /// Removes and returns a repeat that waits; nil if it did not.
    mutating func abandon(_ key: IdempotencyKey, _ number: UInt64) -> Waiter? {
        self.entries[key]?.waiters.removeValue(forKey: number)
    }

    /// Returns the cost of keeping an answer, in bytes.
    static func cost(of answer: KeptAnswer, _ key: IdempotencyKey) -> Int {
        answer.body.readableBytes + WireMetadata.length(of: answer.metadata) + key.key.utf8.count
            + (key.identity?.utf8.count ?? 0) + Self.overhead
    }

    private mutating func forget(now: NIODeadline) {
        while let oldest = self.ages.first,
            oldest.until <= now || self.ages.count > self.policy.maximumCount
                || self.keptBytes > self.policy.maximumBytes
        {
            self.ages.removeFirst()
            guard let kept = self.entries[oldest.key]?.kept, kept.number == oldest.number else { continue }
            self.entries[oldest.key] = nil
            self.keptBytes -= kept.cost
        }
    }
}

extension IdempotencyWindow: Sendable where Waiter: Sendable {}
extension IdempotencyWindow.Entry: Sendable where Waiter: Sendable {}
