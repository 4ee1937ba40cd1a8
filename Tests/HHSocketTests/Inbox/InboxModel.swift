// SPDX-License-Identifier: Apache-2.0
@testable import HHSocket
@testable import HHSocketLink

/// A mistake of the model, which the comparison with an inbox must find.
enum InboxFlaw: CaseIterable {
    case limitIsOneMore
    case releasesAtAThird
    case dropsTheOther
    case batchesCountTowardsTheLimit
    case restGoesToTheEnd
    case restIsLost
    case lastReaderIsServedFirst
    case handledWhenTaken
    case releasedReaderHandlesNothing
    case drainedReaderHandlesNothing
    case costWithoutSlot
    case endDropsElements
    case cancelKeepsElements
    case cancelledHoldStays
}

/// The required behaviour of an inbox, of numbers: lists.
struct InboxModel {
    struct Reader {
        /// The elements that it has taken together, and those among them that it has not returned.
        var taken: [Int] = []
        var rest: [Int] = []
        /// The element that it has returned last, and not handled.
        var current: Int?
    }

    let bounds: InboxBounds
    let flaw: InboxFlaw?
    var waiting: [Int] = []
    var readers: [Reader]
    /// The numbers of the readers that wait, in order.
    var line: [Int] = []
    var isFull = false
    var isOver = false
    var drops = false
    var isAskedForHandled = false
    /// What has happened, in order.
    var events: [String] = []

    init(_ bounds: InboxBounds, readers: Int, _ flaw: InboxFlaw?) {
        self.bounds = bounds
        self.flaw = flaw
        self.readers = Array(repeating: Reader(), count: readers)
    }

    static func memory(of number: Int) -> Int { number % 5 * 100 }

    func cost(of numbers: [Int]) -> Int {
        numbers.reduce(0) { $0 + Self.memory(of: $1) + (self.flaw == .costWithoutSlot ? 0 : 128) }
    }

    /// The bytes that an account is charged.
    var charge: Int { self.cost(of: self.waiting) + self.cost(of: self.readers.flatMap(\.taken)) }

    private var isHandled: Bool {
        self.waiting.isEmpty && self.readers.allSatisfy { $0.rest.isEmpty && $0.current == nil }
    }

    private var isAtLimit: Bool {
        let held = self.flaw == .batchesCountTowardsTheLimit ? self.readers.reduce(0) { $0 + $1.rest.count } : 0
        let count = self.bounds.count + (self.flaw == .limitIsOneMore && self.bounds.count < .max ? 1 : 0)
        return self.waiting.count + held >= count || self.cost(of: self.waiting) >= self.bounds.bytes
    }

    private mutating func noteHandled() {
        guard self.isAskedForHandled, self.isHandled else { return }
        self.isAskedForHandled = false
        self.events.append("handled")
    }

    mutating func askForHandled() {
        if self.isOver { return self.events.append("handled") }
        self.isAskedForHandled = true
        self.noteHandled()
    }

    // MARK: Elements that arrive

    private mutating func serve(_ arrived: inout [Int]) {
        while !arrived.isEmpty, !self.line.isEmpty {
            let reader = self.flaw == .lastReaderIsServedFirst ? self.line.removeLast() : self.line.removeFirst()
            let count = self.bounds.isForOneReader ? arrived.count : 1
            self.readers[reader].taken = Array(arrived.prefix(count))
            self.readers[reader].rest = self.readers[reader].taken
            arrived.removeFirst(count)
            self.events.append("reader \(reader) is served")
        }
    }

    mutating func append(_ numbers: [Int]) {
        guard !self.isOver, !self.drops else { return }
        var arrived = numbers
        self.serve(&arrived)
        var (dropped, holds) = (0, false)
        for number in arrived {
            var atLimit = self.bounds.atLimit
            if self.flaw == .dropsTheOther { atLimit = atLimit == .dropOldest ? .dropNewest : atLimit }
            switch atLimit {
            case .dropNewest where self.isAtLimit:
                dropped += 1
                continue
            case .dropOldest where self.isAtLimit && !self.waiting.isEmpty:
                self.waiting.removeFirst()
                dropped += 1
            case .dropOldest, .dropNewest, .hold, .unbounded: break
            }
            self.waiting.append(number)
            if atLimit == .hold, !self.isFull, self.isAtLimit { (self.isFull, holds) = (true, true) }
        }
        if dropped > 0 { self.events.append("\(dropped) dropped") }
        if holds { self.events.append("holds") }
    }

    // MARK: Readers

    mutating func take(_ reader: Int) -> Int? {
        self.readers[reader].current = nil
        if self.readers[reader].rest.isEmpty { self.fill(reader) }
        guard !self.readers[reader].rest.isEmpty else { return nil }
        let number = self.readers[reader].rest.removeFirst()
        if self.flaw != .handledWhenTaken { self.readers[reader].current = number }
        // A flawed reader notes it here.
        if self.flaw == .handledWhenTaken { self.noteHandled() }
        return number
    }

    private mutating func fill(_ reader: Int) {
        let count = min(self.bounds.batch, self.waiting.count)
        self.readers[reader].taken = Array(self.waiting.prefix(count))
        self.readers[reader].rest = self.readers[reader].taken
        self.waiting.removeFirst(count)
        let part = self.flaw == .releasesAtAThird ? 3 : 2
        if self.isFull, self.waiting.count <= self.bounds.count / part,
            self.cost(of: self.waiting) <= self.bounds.bytes / part
        {
            self.isFull = false
            self.events.append("releases")
        }
        if count > 0 || self.flaw != .drainedReaderHandlesNothing { self.noteHandled() }
    }

    /// - Returns: The reason why it does not wait; nil if it waits, or gets an element.
    mutating func wait(_ reader: Int) -> String? {
        if self.isOver { return "over" }
        if self.bounds.isForOneReader, !self.line.isEmpty { return "busy" }
        self.line.append(reader)
        return nil
    }

    mutating func stopWaiting(_ reader: Int) {
        self.line.removeAll { $0 == reader }
    }

    mutating func release(_ reader: Int) {
        var rest = self.readers[reader].rest
        let wasIdle = self.readers[reader].taken.isEmpty
        if self.flaw == .releasedReaderHandlesNothing, let current = self.readers[reader].current {
            self.readers[reader] = Reader(current: current)
        } else {
            self.readers[reader] = Reader()
        }
        guard !wasIdle else { return }
        if !self.drops, self.flaw != .restIsLost {
            self.serve(&rest)
            self.waiting = self.flaw == .restGoesToTheEnd ? self.waiting + rest : rest + self.waiting
        }
        self.noteHandled()
    }

    // MARK: The end

    private mutating func end() {
        self.isOver = true
        for reader in self.line { self.events.append("reader \(reader) is served") }
        self.line = []
    }

    mutating func finish() {
        self.end()
        if self.flaw == .endDropsElements { self.waiting = [] }
        self.noteHandled()
    }

    mutating func discard() {
        self.drops = true
        self.isFull = false
        if self.flaw != .cancelKeepsElements { self.waiting = [] }
        self.noteHandled()
    }

    mutating func cancel() {
        let wasHolding = self.isFull && !self.isOver
        self.end()
        self.discard()
        if wasHolding, self.flaw != .cancelledHoldStays { self.events.append("releases") }
        self.events.append("over")
    }
}
