// SPDX-License-Identifier: Apache-2.0
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// Elements are appended, moved and removed. The model is an array.
private enum ListHistory {
    /// A mistake of the model.
    enum Flaw: CaseIterable {
        case movedElementsStay, removedElementsStay, theLastIsTheFirst, changesAreLost
    }

    private struct World: ~Copyable {
        let flaw: Flaw?
        var list = SlotList<Int>()
        var model: [(key: SlotKey, number: Int)] = []
        var removed: [SlotKey] = []

        init(_ flaw: Flaw?) { self.flaw = flaw }

        /// Returns the first deviation.
        mutating func step(_ number: Int, _ generator: inout SeededGenerator) -> String? {
            let index = self.model.indices.randomElement(using: &generator)
            switch (Int.random(in: 0..<10, using: &generator), index) {
            case (0..<4, _), (_, nil):
                self.model.append((self.list.append(number), number))
            case (4..<6, let index?):
                let one = self.model[index]
                guard self.list.remove(one.key) == one.number else { return "\(one) was not removed" }
                self.removed.append(one.key)
                if self.flaw != .removedElementsStay { self.model.remove(at: index) }
            case (6..<8, let index?):
                let key = self.model[index].key
                self.list.moveToEnd(key)
                if self.flaw != .movedElementsStay { self.model.append(self.model.remove(at: index)) }
            case (8, let index?):
                self.list.with(self.model[index].key) { $0 += 1_000 }
                if self.flaw != .changesAreLost { self.model[index].number += 1_000 }
            default:
                guard let key = self.removed.randomElement(using: &generator) else { return nil }
                self.list.moveToEnd(key)
                guard self.list[key] == nil, self.list.remove(key) == nil else { return "\(key) is found" }
            }
            return nil
        }

        func check() -> String? {
            let first = self.flaw == .theLastIsTheFirst ? self.model.last : self.model.first
            guard self.list.count == self.model.count, self.list.first == first?.key else { return "the first differs" }
            for (key, number) in self.model where self.list[key] != number { return "\(key) is not \(number)" }
            return nil
        }

        /// Removes all in order.
        mutating func end() -> String? {
            for one in self.model {
                guard self.list.first == one.key, self.list.remove(one.key) == one.number else {
                    return "\(one) is not next"
                }
            }
            return self.list.count == 0 && self.list.first == nil ? nil : "elements are left"
        }
    }

    /// Returns the first deviation from the model.
    static func run(seed: UInt64, steps: Int = 300, flaw: Flaw? = nil) -> String? {
        var generator = SeededGenerator(seed: seed)
        var world = World(flaw)
        for number in 0..<steps {
            if let found = world.step(number, &generator) ?? world.check() { return found }
        }
        return world.end()
    }
}

@Suite struct SlotListTests {
    @Test func randomHistoriesAreThoseOfAnArray() {
        for seed in 0..<UInt64(scaled(100)) {
            if let found = ListHistory.run(seed: seed) { Issue.record("\(found), seed \(seed)") }
        }
    }

    @Test(arguments: ListHistory.Flaw.allCases)
    private func flawIsFound(_ flaw: ListHistory.Flaw) {
        #expect((0..<20).contains { ListHistory.run(seed: $0, flaw: flaw) != nil })
    }
}
