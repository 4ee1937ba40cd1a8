// SPDX-License-Identifier: Apache-2.0
import DequeModule

/// A queue of elements, highest priority first, equals in the order in which they were appended.
package struct PriorityQueue<Element> {
    fileprivate struct Level {
        var priority: FramePriority
        /// Never empty.
        var elements: Deque<Element>
    }

    /// One for each priority that waits, the lowest first.
    private var levels: [Level] = []
    package private(set) var count = 0

    package var isEmpty: Bool { self.count == 0 }

    /// The element to remove next.
    package var first: Element? { self.levels.isEmpty ? nil : self.levels[self.levels.count - 1].elements.first }

    /// The priority of the first element.
    package var firstPriority: FramePriority? {
        self.levels.isEmpty ? nil : self.levels[self.levels.count - 1].priority
    }

    package init() {}

    package mutating func append(_ element: Element, _ priority: FramePriority) {
        self.count += 1
        let index = self.firstIndex(atLeast: priority)
        if index < self.levels.count, self.levels[index].priority == priority {
            self.levels[index].elements.append(element)
        } else {
            self.levels.insert(Level(priority: priority, elements: [element]), at: index)
        }
    }

    private func firstIndex(atLeast priority: FramePriority) -> Int {
        var range = self.levels.startIndex..<self.levels.endIndex
        while !range.isEmpty {
            let middle = range.lowerBound + range.count / 2
            if self.levels[middle].priority < priority {
                range = middle + 1..<range.upperBound
            } else {
                range = range.lowerBound..<middle
            }
        }
        return range.lowerBound
    }

    package mutating func popFirst() -> Element? {
        guard let last = self.levels.indices.last else { return nil }
        let element = self.levels[last].elements.popFirst()
        if self.levels[last].elements.isEmpty { self.levels.removeLast() }
        self.count -= 1
        return element
    }

    package mutating func removeAll(where predicate: (Element) -> Bool) {
        for index in self.levels.indices { self.levels[index].elements.removeAll(where: predicate) }
        self.levels.removeAll { $0.elements.isEmpty }
        self.count = self.levels.reduce(0) { $0 + $1.elements.count }
    }
}

extension PriorityQueue: Sendable where Element: Sendable {}
extension PriorityQueue.Level: Sendable where Element: Sendable {}
