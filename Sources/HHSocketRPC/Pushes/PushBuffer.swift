// SPDX-License-Identifier: Apache-2.0
import DequeModule

/// The pushes that wait for one subscriber. Drops pushes and suspends reading according to the policy; no locks, no
/// threads.
struct PushBuffer<Element: Sendable>: Sendable {
    enum Appended: Equatable {
        case kept
        /// The policy dropped a push: an older one, or this one.
        case dropped
        /// Kept; reading must be suspended from now on.
        case holdsReading
    }

    private let policy: PushBufferingPolicy
    private var elements: Deque<Element> = []
    /// Whether reading must be suspended.
    private(set) var holdsReading = false

    init(_ policy: PushBufferingPolicy) {
        self.policy = policy
    }

    var count: Int { self.elements.count }

    mutating func append(_ element: Element) -> Appended {
        switch self.policy {
        case .dropNewest where self.count >= self.policy.limit:
            return .dropped
        case .dropOldest where self.count >= self.policy.limit:
            self.elements.removeFirst()
            self.elements.append(element)
            return .dropped
        case .dropOldest, .dropNewest:
            self.elements.append(element)
            return .kept
        case .suspendReading:
            self.elements.append(element)
            guard !self.holdsReading, self.count >= self.policy.limit else { return .kept }
            self.holdsReading = true
            return .holdsReading
        }
    }

    /// Removes and returns the oldest element, and whether reading may resume. Nil if the buffer is empty.
    mutating func popFirst() -> (element: Element, releasesReading: Bool)? {
        guard let element = self.elements.popFirst() else { return nil }
        return (element, self.releasesReading())
    }

    /// Moves the oldest elements into `batch`, up to the limit of a batch. Returns whether reading may resume.
    mutating func take(into batch: inout Deque<Element>) -> Bool {
        let count = min(self.count, self.policy.batchLimit)
        if count == self.count, batch.isEmpty {
            swap(&batch, &self.elements)
        } else {
            for _ in 0..<count {
                if let element = self.elements.popFirst() { batch.append(element) }
            }
        }
        return self.releasesReading()
    }

    private mutating func releasesReading() -> Bool {
        guard self.holdsReading, self.count <= self.policy.limit / 2 else { return false }
        self.holdsReading = false
        return true
    }

    /// The outcome of appending several elements together.
    struct Outcome: Equatable {
        /// The number of elements that the policy dropped for them: older ones, or some of them.
        var dropped = 0
        /// Whether reading must be suspended from now on.
        var holdsReading = false
    }

    /// Appends the elements of `others` in order, and removes them from it.
    mutating func append(contentsOf others: inout Deque<Element>) -> Outcome {
        var outcome = Outcome()
        if self.elements.isEmpty, others.count < self.policy.limit {
            swap(&self.elements, &others)
            return outcome
        }
        while let element = others.popFirst() {
            switch self.append(element) {
            case .kept: break
            case .dropped: outcome.dropped += 1
            case .holdsReading: outcome.holdsReading = true
            }
        }
        return outcome
    }

    /// Puts the unused elements of the last batch back in front. May exceed the policy's limit by their number.
    mutating func giveBack(_ elements: consuming Deque<Element>) {
        elements.append(contentsOf: self.elements)
        self.elements = elements
    }

    /// Discards all elements.
    mutating func removeAll() {
        self.elements = []
        self.holdsReading = false
    }
}
