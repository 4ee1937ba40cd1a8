// SPDX-License-Identifier: Apache-2.0
import DequeModule

/// Holds answers until those to all earlier requests of the connection have left. Requests are numbered from 1 on,
/// without gaps.
struct AnswerOrder<Answer> {
    private enum Place {
        case awaited
        case answered(Answer)
        /// Nobody waits for it any more.
        case abandoned
    }

    private var places: Deque<Place> = []
    /// The number of the first place.
    private var first: UInt64 = 1

    /// The number of requests in line, answered or not.
    var count: Int { self.places.count }

    /// The number of answers that are held.
    private(set) var heldCount = 0

    /// A request has come, which has the next number.
    mutating func reserve() {
        self.places.append(.awaited)
    }

    /// The answer to a request is known.
    ///
    /// - Returns: What may leave now, in order.
    mutating func answer(_ number: UInt64, _ answer: Answer) -> [Answer] {
        self.set(number, .answered(answer))
    }

    /// The request will not be answered.
    ///
    /// - Returns: What may leave now, in order.
    mutating func abandon(_ number: UInt64) -> [Answer] {
        self.set(number, .abandoned)
    }

    private mutating func set(_ number: UInt64, _ place: Place) -> [Answer] {
        guard number >= self.first, number - self.first < UInt64(self.places.count) else { return [] }
        let index = Int(number - self.first)
        guard case .awaited = self.places[index] else { return [] }
        self.places[index] = place
        if case .answered = place { self.heldCount += 1 }
        var ready: [Answer] = []
        loop: while let next = self.places.first {
            switch next {
            case .awaited: break loop
            case .answered(let answer):
                ready.append(answer)
                self.heldCount -= 1
            case .abandoned: break
            }
            self.places.removeFirst()
            self.first += 1
        }
        return ready
    }
}
