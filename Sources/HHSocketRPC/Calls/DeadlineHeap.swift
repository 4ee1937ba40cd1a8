import NIOCore

/// Deadlines with their owners, the earliest first. A finished call's deadline stays until it is met at the top or the heap is
/// swept, so that finishing a call costs nothing here.
struct DeadlineHeap<Key: Sendable>: Sendable {
    struct Element: Sendable {
        var deadline: NIODeadline
        var key: Key
    }

    private var elements: [Element] = []

    var count: Int { self.elements.count }
    var first: Element? { self.elements.first }

    mutating func insert(_ element: Element) {
        self.elements.append(element)
        var index = self.elements.count - 1
        while index > 0 {
            let parent = (index - 1) / 2
            guard element.deadline < self.elements[parent].deadline else { break }
            self.elements[index] = self.elements[parent]
            index = parent
        }
        self.elements[index] = element
    }

    mutating func removeFirst() {
        guard let last = self.elements.popLast(), !self.elements.isEmpty else { return }
        self.sink(last, from: 0)
    }

    /// Keeps only the elements that are still wanted.
    mutating func sweep(_ isWanted: (Element) -> Bool) {
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
