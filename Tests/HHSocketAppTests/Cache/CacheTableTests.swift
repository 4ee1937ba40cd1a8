// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketApp

/// Answers in memory, within their bound.
@Suite(.timeLimit(.minutes(30))) struct CacheTableTests {
    private func key(_ number: Int, type: UInt32 = 101) -> ResponseKey {
        ResponseKey(type: type, body: ByteBuffer(string: "\(number)"))
    }

    private func answer(_ text: String, bytes: Int = 0, owner: String = "a") -> StoredResponse {
        let response = SocketResponse(
            type: 101,
            body: ByteBuffer(string: text + String(repeating: " ", count: bytes)),
            endpoint: Endpoint(host: "server", port: 1)
        )
        return StoredResponse(
            StoredResponse.detached(response),
            storedAt: Date(timeIntervalSince1970: 0),
            owners: [owner]
        )
    }

    @Test func leastRecentlyUsedAnswersAreEvicted() {
        let cost = self.answer("1").cost(with: self.key(1))
        var table = ResponseCacheTable(maximumCost: 10 * cost + cost / 2)
        for number in 0..<10 { table.store(self.answer("\(number)"), for: self.key(number)) }
        #expect(table.count == 10 && table.evictions == 0)
        #expect(table.response(for: self.key(0)) != nil)
        table.store(self.answer("a"), for: self.key(10))
        #expect(table.response(for: self.key(1)) == nil)
        #expect(table.response(for: self.key(0)) != nil)
        #expect(table.count == 10 && table.evictions == 1)
    }

    @Test func theBoundIs20MBByDefaultAndCountsAllThatIsKept() {
        var table = ResponseCacheTable(maximumCost: 20_000_000)
        for number in 0..<1_000 { table.store(self.answer("", bytes: 60_000), for: self.key(number)) }
        #expect(table.cost <= 20_000_000)
        // The length of NIO's buffers is the next power of two.
        #expect(table.count == 20_000_000 / self.answer("", bytes: 60_000).cost(with: self.key(999)))
        #expect(table.evictions == 1_000 - table.count)
    }

    @Test func anAnswerThatWouldDriveOutTooManyIsNotKeptNorTheOneBefore() {
        var table = ResponseCacheTable(maximumCost: 100_000)
        table.store(self.answer("small"), for: self.key(1))
        table.store(self.answer("large", bytes: 13_000), for: self.key(1))
        #expect(table.count == 0 && table.cost == 0)
        table.store(self.answer("fits", bytes: 7_000), for: self.key(1))
        #expect(table.count == 1)
    }

    @Test func nothingIsKeptWithoutRoom() {
        for maximum in [0, -1, Int.min] {
            var table = ResponseCacheTable(maximumCost: maximum)
            table.store(self.answer("1"), for: self.key(1))
            #expect(table.count == 0)
        }
    }

    private enum Step: CustomStringConvertible {
        case store(Int, bytes: Int, owner: String)
        case use(Int)
        case remove(ResponseRemoval)

        var description: String {
            switch self {
            case .store(let key, let bytes, let owner): "store \(key), \(bytes) bytes of \(owner)"
            case .use(let key): "use \(key)"
            case .remove(let removal): "remove \(removal)"
            }
        }
    }

    private func randomStep(_ generator: inout SeededGenerator) -> Step {
        let key = Int.random(in: 0..<30, using: &generator)
        switch Int.random(in: 0..<20, using: &generator) {
        case 0: return .remove(.ofOwner(["a", "b"].randomElement(using: &generator) ?? "a"))
        case 1: return .remove(.ofType(UInt32.random(in: 101...102, using: &generator)))
        case 2: return .remove(.forKey(self.modelKey(key)))
        case 3: return Bool.random(using: &generator) ? .remove(.all) : .use(key)
        case 4..<12: return .use(key)
        default:
            return .store(
                key,
                bytes: Int.random(in: 0..<6_000, using: &generator),
                owner: ["a", "b"].randomElement(using: &generator) ?? "a"
            )
        }
    }

    private func modelKey(_ number: Int) -> ResponseKey { self.key(number, type: 101 + UInt32(number % 2)) }

    /// Compares the table with a list that is searched linearly; nil if both agree at each step.
    private func disagreement(_ script: [Step]) -> String? {
        let maximum = 40_000
        var table = ResponseCacheTable(maximumCost: maximum)
        var model: [(key: ResponseKey, answer: StoredResponse)] = []
        var evictions = 0
        func cost() -> Int { model.reduce(0) { $0 + $1.answer.cost(with: $1.key) } }
        for step in script {
            switch step {
            case .store(let number, let bytes, let owner):
                let key = self.modelKey(number)
                let answer = self.answer("\(number)", bytes: bytes, owner: owner)
                table.store(answer, for: key)
                model.removeAll { $0.key == key }
                guard answer.cost(with: key) <= maximum / 8 else { break }
                while cost() + answer.cost(with: key) > maximum {
                    model.removeFirst()
                    evictions += 1
                }
                model.append((key, answer))
            case .use(let number):
                let key = self.modelKey(number)
                let found = table.response(for: key)
                let index = model.firstIndex { $0.key == key }
                if found != index.map({ model[$0].answer }) { return "\(step): found \(String(describing: found))" }
                if let index { model.append(model.remove(at: index)) }
            case .remove(let removal):
                table.remove(removal)
                model.removeAll { removal.covers($0.key, $0.answer) }
            }
            guard table.cost == cost(), table.count == model.count, table.evictions == evictions else {
                return "\(step): \(table.count) cost \(table.cost), not \(model.count) that cost \(cost())"
            }
        }
        return nil
    }

    @Test func randomHistoriesAgreeWithAList() {
        for seed in 0..<UInt64(max(1, historyCount / 100)) {
            var generator = SeededGenerator(seed: seed)
            let script = (0..<200).map { _ in self.randomStep(&generator) }
            guard let broken = self.disagreement(script) else { continue }
            let (short, still) = shortened(script, broken) { self.disagreement($0) }
            Issue.record("seed \(seed): \(still) in \(short)")
            return
        }
    }
}
