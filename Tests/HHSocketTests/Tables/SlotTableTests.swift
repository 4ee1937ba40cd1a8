// SPDX-License-Identifier: Apache-2.0
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// Elements come and go in a table. The model is a dictionary of the numbers by key, and a list of the keys of all
/// elements that were removed.
private enum SlotHistory {
    /// A mistake of the model.
    enum Flaw: CaseIterable {
        case removedElementsStay, changesAreLost, oldKeysAreValid, memoryIsReleasedSooner, vacatedElementsLeak
    }

    /// Counts the objects that exist.
    private final class Census {
        var count = 0
    }

    private final class Object {
        private let census: Census

        init(_ census: Census) {
            self.census = census
            census.count += 1
        }

        deinit { self.census.count -= 1 }
    }

    private struct Element {
        var number: Int
        var object: Object?
    }

    private struct World: ~Copyable {
        let flaw: Flaw?
        let census: Census
        var table = SlotTable<Element>()
        var numbers: [SlotKey: Int] = [:]
        var removed: [SlotKey] = []
        var lastNumber = 0
        var leaked = 0

        init(_ census: Census, _ flaw: Flaw?) {
            self.census = census
            self.flaw = flaw
        }

        mutating func noteRemoval(_ key: SlotKey) {
            if self.flaw != .removedElementsStay { self.numbers[key] = nil }
            self.removed.append(key)
        }

        /// Returns the first deviation.
        mutating func step(_ generator: inout SeededGenerator) -> String? {
            switch Int.random(in: 0..<100, using: &generator) {
            case 0..<45: return self.insert()
            case 45..<60:
                guard let key = self.key(&generator) else { return nil }
                let element = self.table.remove(key)
                guard element?.number == self.numbers[key] else { return "\(key) had another element" }
                self.noteRemoval(key)
            case 60..<70:
                guard let key = self.key(&generator) else { return nil }
                let number = self.table.with(key) { element in
                    element.object = nil
                    return element.number
                }
                guard number == self.numbers[key] else { return "\(key) has another element" }
                self.table.vacate(key.index)
                if self.flaw == .vacatedElementsLeak { self.leaked += 1 }
                self.noteRemoval(key)
            case 70..<80:
                guard let key = self.key(&generator) else { return nil }
                self.table[key.index].number += 1_000
                if self.flaw != .changesAreLost { self.numbers[key]? += 1_000 }
                guard self.table[key.index].number == self.numbers[key], self.table[key]?.number == self.numbers[key],
                    self.table.key(at: key.index) == key
                else { return "\(key) has another element" }
            case 80..<95:
                guard let key = self.removed.randomElement(using: &generator) else { return nil }
                let isThere = self.flaw == .oldKeysAreValid
                guard self.table.contains(key) == isThere, (self.table[key] != nil) == isThere,
                    (self.table.remove(key) != nil) == isThere, self.table.with(key, { $0.number }) == nil
                else { return "\(key) is found" }
            default: return self.empty(Int.random(in: 0..<64, using: &generator))
            }
            return nil
        }

        private mutating func key(_ generator: inout SeededGenerator) -> SlotKey? {
            self.numbers.keys.sorted { $0.index < $1.index }.randomElement(using: &generator)
        }

        private mutating func insert() -> String? {
            self.lastNumber += 1
            let key = self.table.insert(Element(number: self.lastNumber, object: Object(self.census)))
            guard self.numbers.updateValue(self.lastNumber, forKey: key) == nil, !self.removed.contains(key) else {
                return "\(key) comes again"
            }
            return nil
        }

        /// Removes all at once, so that the memory can be released.
        private mutating func empty(_ kept: Int) -> String? {
            guard self.table.count == 0 || !self.table.releaseMemory(keeping: 0) else {
                return "it is released too early"
            }
            for key in self.table.keys(where: { _ in true }) {
                self.table.remove(key)
                self.noteRemoval(key)
            }
            let slots = self.table.indices.count
            let isReleased = self.flaw == .memoryIsReleasedSooner ? slots >= kept : slots > kept
            guard self.table.releaseMemory(keeping: kept) == isReleased else { return "\(slots) slots, \(kept) kept" }
            return self.table.indices.count == (isReleased ? 0 : slots) ? nil : "slots were kept"
        }

        func check() -> String? {
            guard self.table.count == self.numbers.count else { return "it has \(self.table.count) elements" }
            guard self.census.count + self.leaked == self.numbers.count else { return "\(self.census.count) objects" }
            return nil
        }

        func checkKeys() -> String? {
            let keys = Set(self.table.keys { _ in true })
            let even = Set(self.table.keys { $0.number % 2 == 0 })
            let isRight = keys == Set(self.numbers.keys) && even == Set(self.numbers.filter { $0.value % 2 == 0 }.keys)
            return isRight ? nil : "the keys differ"
        }
    }

    /// Returns the first deviation from the model.
    static func run(seed: UInt64, steps: Int = 2_000, flaw: Flaw? = nil) -> String? {
        var generator = SeededGenerator(seed: seed)
        let census = Census()
        do {
            var world = World(census, flaw)
            for _ in 0..<steps {
                if let found = world.step(&generator) ?? world.check() { return found }
            }
            if let found = world.checkKeys() { return found }
        }
        return census.count == 0 ? nil : "\(census.count) objects are left"
    }
}

@Suite struct SlotTableTests {
    @Test func randomHistoriesAreThoseOfADictionaryAndNoObjectLeaks() {
        for seed in 0..<UInt64(scaled(20)) {
            if let found = SlotHistory.run(seed: seed) { Issue.record("\(found), seed \(seed)") }
        }
    }

    @Test(arguments: SlotHistory.Flaw.allCases)
    private func flawIsFound(_ flaw: SlotHistory.Flaw) {
        #expect((0..<20).contains { SlotHistory.run(seed: $0, steps: 500, flaw: flaw) != nil })
    }

    @Test func slotThatBecameFreeLastIsReusedFirst() {
        var table = SlotTable<Int>()
        let keys = (0..<40).map { table.insert($0) }
        for index in [7, 30, 12] { table.remove(keys[index]) }
        let reused = (0..<4).map { table.insert($0).index }
        #expect(reused == [12, 30, 7, 40])
        #expect(table.indices.count == 41)
    }
}
