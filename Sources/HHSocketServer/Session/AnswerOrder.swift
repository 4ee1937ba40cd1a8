// SPDX-License-Identifier: Apache-2.0
import DequeModule

/// Holds answers until the answers to all earlier requests of the connection have been sent. Requests are numbered from
/// 1, without gaps.
struct AnswerOrder<Answer> {
    private enum Slot {
        case awaited
        case answered(Answer)
        /// The request will not be answered.
        case abandoned
    }

    private var slots: Deque<Slot> = []
    /// The number of the first slot.
    private var first: UInt64 = 1

    /// The number of requests in line, answered or not.
    var count: Int { self.slots.count }

    /// The number of answers that are held.
    private(set) var heldCount = 0

    /// Whether the answer to this request may be sent at once.
    func isNext(_ number: UInt64) -> Bool { number == self.first }

    /// Reserves the slot of the next request.
    mutating func reserve() {
        self.slots.append(.awaited)
    }

    /// Records the answer to a request.
    ///
    /// - Returns: The answers that may be sent now, in order.
    mutating func answer(_ number: UInt64, _ answer: Answer) -> [Answer] {
        self.set(number, .answered(answer))
    }

    /// Records that the request will not be answered.
    ///
    /// - Returns: The answers that may be sent now, in order.
    mutating func abandon(_ number: UInt64) -> [Answer] {
        self.set(number, .abandoned)
    }

    private mutating func set(_ number: UInt64, _ slot: Slot) -> [Answer] {
        guard number >= self.first, number - self.first < UInt64(self.slots.count) else { return [] }
        let index = Int(number - self.first)
        guard case .awaited = self.slots[index] else { return [] }
        self.slots[index] = slot
        if case .answered = slot { self.heldCount += 1 }
        var ready: [Answer] = []
        loop: while let next = self.slots.first {
            switch next {
            case .awaited: break loop
            case .answered(let answer):
                ready.append(answer)
                self.heldCount -= 1
            case .abandoned: break
            }
            self.slots.removeFirst()
            self.first += 1
        }
        return ready
    }
}
