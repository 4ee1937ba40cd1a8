// SPDX-License-Identifier: Apache-2.0
/// Units whose sending no link has begun, or their representatives: bounded, ordered by priority, and by arrival within
/// a priority; units that were removed for sending and are returned precede their equals.
///
/// Some units are removed while they wait, for example when they are no longer needed. They stay as stubs until
/// most entries are stubs, so the cost of removing does not depend on the length of the queue.
package struct WaitingLine<Element> {
    fileprivate struct QueueEntry {
        var element: Element
        var cost: Int
    }

    private let maximumCount: Int
    private let maximumBytes: Int
    private var waiting = PriorityQueue<QueueEntry>()
    /// Units that were removed for sending and returned.
    private var returning = PriorityQueue<QueueEntry>()
    /// The number of elements that wait.
    package private(set) var count = 0
    /// The cost of the waiting elements, in bytes.
    package private(set) var bytes = 0

    package init(maximumCount: Int = .max, maximumBytes: Int = .max) {
        self.maximumCount = maximumCount
        self.maximumBytes = maximumBytes
    }

    package var isEmpty: Bool { self.count == 0 }

    /// The number of entries, stubs included.
    package var length: Int { self.waiting.count + self.returning.count }

    /// Whether one more unit of this cost may wait. An empty queue accepts one of any size.
    package func hasRoom(for cost: Int) -> Bool {
        self.count < self.maximumCount && (self.count == 0 || cost <= self.maximumBytes - self.bytes)
    }

    /// - Parameter isReturning: Whether it precedes those of its priority that were never removed.
    package mutating func append(_ element: Element, _ priority: FramePriority, cost: Int, isReturning: Bool = false) {
        self.count += 1
        self.bytes += cost
        self.appendEntry(element, priority, cost: cost, isReturning: isReturning)
    }

    /// Moves a waiting element behind the others of this priority; its former entry is a stub from now on.
    package mutating func move(
        _ element: Element,
        to priority: FramePriority,
        cost: Int,
        isReturning: Bool,
        where isStub: (Element) -> Bool
    ) {
        self.dropStubs(where: isStub)
        self.appendEntry(element, priority, cost: cost, isReturning: isReturning)
    }

    private mutating func appendEntry(_ element: Element, _ priority: FramePriority, cost: Int, isReturning: Bool) {
        if isReturning {
            self.returning.append(QueueEntry(element: element, cost: cost), priority)
        } else {
            self.waiting.append(QueueEntry(element: element, cost: cost), priority)
        }
    }

    /// Removes the cost of an element that no longer waits; its entry is a stub from now on.
    package mutating func makeStub(cost: Int, where isStub: (Element) -> Bool) {
        self.removedOne(cost: cost)
        self.dropStubs(where: isStub)
    }

    private mutating func removedOne(cost: Int) {
        self.count -= 1
        self.bytes -= cost
    }

    /// Removes the stubs once most entries are stubs.
    private mutating func dropStubs(where isStub: (Element) -> Bool) {
        guard self.length > 2 * self.count + 64 else { return }
        self.waiting.removeAll { isStub($0.element) }
        self.returning.removeAll { isStub($0.element) }
    }

    /// Removes the first element.
    ///
    /// - Parameter fits: Whether an element of this cost may be sent now; otherwise none is removed.
    package mutating func popFirst(where fits: (Int) -> Bool = { _ in true }, unless isStub: (Element) -> Bool)
        -> Element?
    {
        while let (first, comesBack) = self.first {
            let isStub = isStub(first.element)
            guard isStub || fits(first.cost) else { return nil }
            if comesBack { _ = self.returning.popFirst() } else { _ = self.waiting.popFirst() }
            if isStub { continue }
            self.removedOne(cost: first.cost)
            return first.element
        }
        return nil
    }

    private var first: (QueueEntry, comesBack: Bool)? {
        if let priority = self.returning.firstPriority, priority >= self.waiting.firstPriority ?? priority,
            let first = self.returning.first
        {
            return (first, true)
        }
        return self.waiting.first.map { ($0, false) }
    }

    /// Removes all entries, which must be stubs.
    package mutating func removeStubs() {
        assert(self.count == 0)
        self.waiting = PriorityQueue()
        self.returning = PriorityQueue()
    }
}

extension WaitingLine: Sendable where Element: Sendable {}
extension WaitingLine.QueueEntry: Sendable where Element: Sendable {}
