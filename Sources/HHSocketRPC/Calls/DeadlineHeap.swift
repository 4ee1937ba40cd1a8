// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// A min-heap of deadlines with their owners. The deadline of a finished call stays until it reaches the top or the
/// heap is swept, so that finishing a call costs nothing here.
package struct DeadlineHeap<Key: Sendable>: Sendable {
    package struct Element: Sendable {
        package var deadline: NIODeadline
        package var key: Key

        package init(deadline: NIODeadline, key: Key) {
            self.deadline = deadline
            self.key = key
        }
    }

    private var elements: [Element] = []

    package init() {}

    package var count: Int { self.elements.count }
    package var first: Element? { self.elements.first }

    package mutating func insert(_ element: Element) {
        self.elements.append(element)
        var index = self.elements.count - 1
        // If timeouts are equal, each deadline is the latest and is already in its place.
        guard index > 0, element.deadline < self.elements[(index - 1) / 2].deadline else { return }
        while index > 0 {
            let parent = (index - 1) / 2
            guard element.deadline < self.elements[parent].deadline else { break }
            self.elements[index] = self.elements[parent]
            index = parent
        }
        self.elements[index] = element
    }

    package mutating func removeFirst() {
        guard let last = self.elements.popLast(), !self.elements.isEmpty else { return }
        self.sink(last, from: 0)
    }

    /// Keeps only the elements that are still wanted.
    package mutating func sweep(_ isWanted: (Element) -> Bool) {
        self.elements.removeAll { !isWanted($0) }
        for index in stride(from: self.elements.count / 2 - 1, through: 0, by: -1) {
            self.sink(self.elements[index], from: index)
        }
    }

    /// Puts `element` at `start` or below, where it belongs.
    private mutating func sink(_ element: Element, from start: Int) {
        let count = self.elements.count
        var index = start
        while true {
            var child = 2 * index + 1
            guard child < count else { break }
            if child + 1 < count, self.elements[child + 1].deadline < self.elements[child].deadline { child += 1 }
            guard self.elements[child].deadline < element.deadline else { break }
            self.elements[index] = self.elements[child]
            index = child
        }
        self.elements[index] = element
    }
}
