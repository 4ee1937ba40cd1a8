// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct PriorityQueueTests {
    @Test func prioritiesAreWhatURLSessionCallsThemAndNothingIsOutOfRange() {
        #expect(FramePriority.low.rawValue == 0.25)
        #expect(FramePriority.default.rawValue == 0.5)
        #expect(FramePriority.high.rawValue == 0.75)
        #expect(FramePriority(rawValue: 7) == 1.0)
        #expect(FramePriority(rawValue: -7) == 0.0)
        #expect(FramePriority(rawValue: .nan) == .default)
        #expect(FramePriority(rawValue: 1) < .control)
    }

    @Test func highestComesFirstAndEqualsInTheOrderTheyCame() {
        var queue = PriorityQueue<String>()
        for (name, priority) in [
            ("a", 0.5), ("b", 0.25), ("c", 0.75), ("d", 0.5), ("e", 0.75), ("f", 0), ("g", 1), ("h", 0.6),
        ] as [(String, Float)] {
            queue.append(name, FramePriority(rawValue: priority))
        }
        #expect(queue.count == 8)
        #expect(queue.first == "g")
        var order = ""
        while let name = queue.popFirst() { order += name }
        #expect(order == "gcehadbf")
        #expect(queue.isEmpty)
        #expect(queue.first == nil)
    }

    @Test func randomHistoriesAreThoseOfASortedList() {
        var generator = SeededGenerator(seed: 4)
        for _ in 0..<200 {
            var queue = PriorityQueue<Int>()
            var model: [(priority: Float, number: Int)] = []
            for number in 0..<200 {
                switch Int.random(in: 0..<10, using: &generator) {
                case 0..<6:
                    let priority = Float(Int.random(in: 0...6, using: &generator)) / 6
                    queue.append(number, FramePriority(rawValue: priority))
                    let position = model.firstIndex { $0.priority < priority } ?? model.endIndex
                    model.insert((priority, number), at: position)
                case 6..<9:
                    let expected = model.isEmpty ? nil : model.removeFirst().number
                    let first = queue.first
                    let popped = queue.popFirst()
                    #expect(first == expected)
                    #expect(popped == expected)
                default:
                    let victim = Int.random(in: 0..<5, using: &generator)
                    queue.removeAll { $0 % 5 == victim }
                    model.removeAll { $0.number % 5 == victim }
                }
                #expect(queue.count == model.count)
                #expect(queue.isEmpty == model.isEmpty)
            }
        }
    }
}
