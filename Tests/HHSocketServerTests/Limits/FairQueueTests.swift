// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import TestSupport
import Testing

@testable import HHSocketServer

@Suite struct FairQueueTests {
    var queue = FairQueue<String>()

    private mutating func popAll() -> [String] {
        var elements: [String] = []
        while let element = self.queue.popFirst() { elements.append(element) }
        return elements
    }

    @Test mutating func ownersAlternateAndEachsElementsKeepTheirOrder() {
        for element in ["a1", "a2", "a3"] { queue.append(element, of: 1) }
        queue.append("b1", of: 2)
        for element in ["c1", "c2"] { queue.append(element, of: 3) }
        #expect(queue.count == 6)
        #expect(popAll() == ["a1", "b1", "c1", "a2", "c2", "a3"])
        #expect(queue.count == 0)
    }

    @Test mutating func laterOwnerWaitsForOneElementOfEachOther() {
        for number in 0..<1_000 { queue.append("a\(number)", of: 1) }
        #expect(queue.popFirst() == "a0")
        queue.append("b", of: 2)
        #expect(queue.popFirst() == "a1")
        #expect(queue.popFirst() == "b")
        #expect(queue.popFirst() == "a2")
    }

    @Test mutating func withdrawnElementsAreGone() {
        let first = queue.append("a1", of: 1)
        queue.append("a2", of: 1)
        let only = queue.append("b1", of: 2)
        #expect(queue.withdraw(first) == "a1")
        #expect(queue.withdraw(first) == nil)
        #expect(queue.withdraw(only) == "b1")
        #expect(popAll() == ["a2"])
        // The owner may add elements again.
        queue.append("b2", of: 2)
        #expect(popAll() == ["b2"])
    }

    @Test mutating func alternatingAdditionsAndWithdrawalsKeepNothing() {
        queue.append("first", of: 1)
        for _ in 0..<10_000 {
            let number = queue.append("next", of: 1)
            #expect(queue.withdraw(number) == "next")
        }
        #expect(queue.count == 1)
        #expect(queue.slotCount < 50)
        #expect(popAll() == ["first"])
        // Also with owners that appear once.
        for owner in 0..<10_000 as Range<UInt64> {
            let number = queue.append("only", of: owner)
            #expect(queue.withdraw(number) == "only")
        }
        #expect(queue.slotCount < 50)
        for owner in 0..<10_000 as Range<UInt64> {
            queue.append("only", of: owner)
            #expect(queue.popFirst() == "only")
        }
        #expect(queue.slotCount < 50)
    }

    /// Compares it with lists that are searched.
    @Test func everyHistoryEndsAsThatOfAModel() {
        var generator = SeededGenerator(seed: 39)
        for _ in 0..<200 {
            var queue = FairQueue<UInt64>()
            var lines: [(owner: UInt64, elements: [UInt64])] = []
            for _ in 0..<200 {
                switch Int.random(in: 0..<4, using: &generator) {
                case 0, 1:
                    let owner = UInt64.random(in: 0..<5, using: &generator)
                    // An element is its own number.
                    let number = queue.append(queue.lastNumber + 1, of: owner)
                    if let index = lines.firstIndex(where: { $0.owner == owner }) {
                        lines[index].elements.append(number)
                    } else {
                        lines.append((owner, [number]))
                    }
                case 2:
                    let expected = lines.isEmpty ? nil : lines[0].elements.first
                    #expect(queue.popFirst() == expected)
                    guard expected != nil else { break }
                    var line = lines.removeFirst()
                    line.elements.removeFirst()
                    if !line.elements.isEmpty { lines.append(line) }
                default:
                    let all = lines.flatMap(\.elements)
                    guard let number = all.randomElement(using: &generator) else { break }
                    #expect(queue.withdraw(number) == number)
                    for index in lines.indices { lines[index].elements.removeAll { $0 == number } }
                    lines.removeAll(where: \.elements.isEmpty)
                }
                #expect(queue.count == lines.reduce(0) { $0 + $1.elements.count })
            }
        }
    }
}

@Suite struct PrincipalQueueTests {
    var queue = PrincipalQueue<String>()

    private mutating func popAll() -> [String] {
        var elements: [String] = []
        while let element = self.queue.popFirst() { elements.append(element) }
        return elements
    }

    @Test mutating func principalsAlternateAndSoDoTheirConnections() {
        for element in ["a1", "a2"] { _ = queue.append(element, of: .init(principal: 1, connection: 1)) }
        for element in ["b1", "b2"] { _ = queue.append(element, of: .init(principal: 1, connection: 2)) }
        for element in ["c1", "c2"] { _ = queue.append(element, of: .init(principal: 2, connection: 3)) }
        #expect(queue.count == 6)
        #expect(popAll() == ["a1", "c1", "b1", "c2", "a2", "b2"])
        #expect(queue.count == 0)
    }

    @Test mutating func withdrawnElementsAreGone() {
        let first = queue.append("a1", of: .init(principal: 1, connection: 1))
        let other = queue.append("b1", of: .init(principal: 1, connection: 2))
        #expect(queue.withdraw(first) == "a1")
        #expect(queue.withdraw(first) == nil)
        #expect(popAll() == ["b1"])
        #expect(queue.withdraw(other) == nil)
        // A later line of the same principal has other places.
        _ = queue.append("a2", of: .init(principal: 1, connection: 1))
        #expect(queue.withdraw(first) == nil && queue.withdraw(other) == nil)
        #expect(popAll() == ["a2"])
    }
}
