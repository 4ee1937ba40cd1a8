// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import TestSupport
import Testing

@testable import HHSocketRPC

@Suite struct SlotTableTests {
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

    /// The elements by their keys, and the keys of all that were removed.
    private struct Model {
        var numbers: [SlotTableKey: Int] = [:]
        var removed: [SlotTableKey] = []
        var lastNumber = 0

        mutating func remove(_ key: SlotTableKey) {
            self.numbers[key] = nil
            self.removed.append(key)
        }
    }

    @Test(arguments: 0..<20)
    func randomHistoriesAreThoseOfADictionaryAndNoObjectLeaks(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        let census = Census()
        do {
            var table = SlotTable<Element>()
            var model = Model()
            for _ in 0..<3_000 {
                Self.step(&table, &model, census, &generator)
                #expect(table.count == model.numbers.count)
                #expect(census.count == model.numbers.count)
            }
            let keys = Set(table.keys { _ in true })
            #expect(keys == Set(model.numbers.keys))
            let even = Set(table.keys { $0.number % 2 == 0 })
            #expect(even == Set(model.numbers.filter { $0.value % 2 == 0 }.keys))
        }
        #expect(census.count == 0)
    }

    private static func step(
        _ table: inout SlotTable<Element>,
        _ model: inout Model,
        _ census: Census,
        _ generator: inout SeededGenerator
    ) {
        let present = model.numbers.keys.min { $0.index < $1.index }
        switch Int.random(in: 0..<100, using: &generator) {
        case 0..<45:
            model.lastNumber += 1
            let key = table.insert(Element(number: model.lastNumber, object: Object(census)))
            #expect(model.numbers.updateValue(model.lastNumber, forKey: key) == nil)
            #expect(!model.removed.contains(key))
        case 45..<60:
            guard let key = model.numbers.keys.randomElement(using: &generator) else { return }
            let element = table.remove(key)
            #expect(element?.number == model.numbers[key])
            model.remove(key)
        case 60..<70:
            guard let key = present else { return }
            let number = table.with(key) { element in
                element.object = nil
                return element.number
            }
            #expect(number == model.numbers[key])
            table.vacate(key.index)
            model.remove(key)
        case 70..<80:
            guard let key = model.numbers.keys.randomElement(using: &generator) else { return }
            table[key.index].number += 1_000
            model.numbers[key]? += 1_000
            let (number, found) = (table[key.index].number, table.key(at: key.index))
            #expect(number == model.numbers[key] && found == key)
        case 80..<95:
            guard let key = model.removed.randomElement(using: &generator) else { return }
            let (isThere, element, result) = (table.contains(key), table.remove(key), table.with(key) { $0.number })
            #expect(!isThere && element == nil && result == nil)
        default:
            // All at once, so that the memory can be released.
            let kept = Int.random(in: 0..<64, using: &generator)
            let isTooEarly = !model.numbers.isEmpty && table.releaseMemory(keeping: 0)
            #expect(!isTooEarly)
            for key in table.keys(where: { _ in true }) {
                table.remove(key)
                model.remove(key)
            }
            let slots = table.indices.count
            #expect(table.releaseMemory(keeping: kept) == (slots > kept))
            #expect(table.indices.count == (slots > kept ? 0 : slots))
        }
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
