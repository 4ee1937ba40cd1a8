// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The running first requests with keys, and the answers to those that have ended. The time is passed in.
///
/// `Waiter` is any representation of a repeat that waits for the first answer. The cost of adding or removing one does
/// not depend on the number that wait for a key. ``KeptShares`` decides how much is kept.
struct IdempotencyWindow<Waiter> {
    enum Beginning {
        /// The request is the first: run it, and report its end to ``finish(_:keeping:number:until:)``.
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
        var until: NIODeadline
    }

    /// The number of repeats that may wait for the answer to one key.
    static var maximumWaiters: Int { 1_024 }

    private var entries: [IdempotencyKey: Entry] = [:]

    /// The requests that are running, and the answers.
    var count: Int { self.entries.count }

    /// Begins a request, or makes it wait.
    ///
    /// - Parameters:
    ///   - request: The fingerprint of the request, to which the key is bound.
    ///   - number: The number of the waiter, for ``abandon(_:_:)``.
    ///   - waiter: The waiter, stored if the request must wait.
    mutating func begin(
        _ key: IdempotencyKey,
        request: RequestFingerprint,
        number: UInt64,
        waiter: Waiter,
        now: NIODeadline
    ) -> Beginning {
        guard let index = self.entries.index(forKey: key) else {
            self.entries[key] = Entry(request: request)
            return .run
        }
        // Changed in place: a copy of the entry would copy all waiters each time.
        if let kept = self.entries.values[index].kept {
            guard kept.until > now else {
                // Its place among the shares is removed later.
                self.entries.values[index] = Entry(request: request)
                return .run
            }
            return self.entries.values[index].request == request ? .answered(kept.answer) : .contradiction
        }
        guard self.entries.values[index].request == request else { return .contradiction }
        guard self.entries.values[index].waiters.count < Self.maximumWaiters else { return .full }
        self.entries.values[index].waiters[number] = waiter
        return .wait
    }

    /// Records the end of the first request.
    ///
    /// - Parameters:
    ///   - answer: The answer to keep; nil if there is none, so that the next repeat is a first.
    ///   - number: The number of the answer, for ``forget(_:_:)``.
    ///   - until: The end of its lifetime.
    /// - Returns: The repeats that have waited for it.
    mutating func finish(
        _ key: IdempotencyKey,
        keeping answer: KeptAnswer?,
        number: UInt64,
        until: NIODeadline
    ) -> [Waiter] {
        guard let entry = self.entries[key], entry.kept == nil else { return [] }
        if let answer {
            self.entries[key] = Entry(request: entry.request, kept: Kept(answer: answer, number: number, until: until))
        } else {
            self.remove(key)
        }
        return Array(entry.waiters.values)
    }

    /// Forgets an answer, unless another request has its key by now.
    mutating func forget(_ key: IdempotencyKey, _ number: UInt64) {
        if self.entries[key]?.kept?.number == number { self.remove(key) }
    }

    private mutating func remove(_ key: IdempotencyKey) {
        self.entries[key] = nil
        // A dictionary never shrinks: after a burst its memory is released with the last entry.
        if self.entries.isEmpty { self.entries = [:] }
    }

    /// Removes and returns a repeat that waits; nil if it did not.
    mutating func abandon(_ key: IdempotencyKey, _ number: UInt64) -> Waiter? {
        self.entries[key]?.waiters.removeValue(forKey: number)
    }
}

extension IdempotencyWindow: Sendable where Waiter: Sendable {}
extension IdempotencyWindow.Entry: Sendable where Waiter: Sendable {}
