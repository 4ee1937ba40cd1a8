// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct TimerTableTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000)

    private mutating func due(_ table: inout TimerTable<String>, at now: NIODeadline) -> [String] {
        var actions: [String] = []
        while let action = table.popDue(now: now) { actions.append(action) }
        return actions
    }

    @Test mutating func timersAreDueInTheOrderOfTheirTimes() {
        var table = TimerTable<String>()
        _ = table.set(start + .seconds(2), "second")
        _ = table.set(start + .seconds(1), "first")
        _ = table.set(start + .seconds(2), "third")
        #expect(table.nextDeadline == start + .seconds(1))
        #expect(due(&table, at: start).isEmpty)
        #expect(due(&table, at: start + .seconds(1)) == ["first"])
        #expect(table.nextDeadline == start + .seconds(2))
        #expect(due(&table, at: start + .seconds(9)) == ["second", "third"])
        #expect(table.nextDeadline == nil)
    }

    @Test mutating func timerThatIsTakenBackIsNeverDue() {
        var table = TimerTable<String>()
        let one = table.set(start, "one")
        _ = table.set(start, "other")
        table.remove(one)
        table.remove(one)
        #expect(due(&table, at: start) == ["other"])
        table.remove(one)
        #expect(table.count == 0)
    }

    /// Cancelling a timer only removes it from a table; from time to time stale entries are cleared.
    @Test mutating func timersThatAreTakenBackTakeNoRoom() {
        var table = TimerTable<String>()
        var random = SeededGenerator(seed: 5)
        var ids = (0..<100_000).map { table.set(start + .milliseconds($0), "\($0)") }
        ids.shuffle(using: &random)
        for (index, id) in ids.dropLast(10).enumerated() {
            table.remove(id)
            #expect(table.occupiedSlots <= 4 * (100_000 - index) + 64)
        }
        #expect(table.count == 10)
        #expect(due(&table, at: .distantFuture).count == 10)
        #expect(table.occupiedSlots == 0)
    }

    @Test mutating func randomHistoriesKeepEveryTimerOnce() {
        for seed in 0..<UInt64(max(1, historyCount / 20)) {
            var random = SeededGenerator(seed: seed)
            var table = TimerTable<String>()
            var expected: [(deadline: NIODeadline, id: TimerTable<String>.ID, name: String)] = []
            var now = start
            for step in 0..<200 {
                switch Int.random(in: 0..<4, using: &random) {
                case 0, 1:
                    let deadline = now + .milliseconds(Int64.random(in: 0...50, using: &random))
                    expected.append((deadline, table.set(deadline, "\(step)"), "\(step)"))
                case 2:
                    guard let index = expected.indices.randomElement(using: &random) else { continue }
                    table.remove(expected.remove(at: index).id)
                default:
                    now = now + .milliseconds(Int64.random(in: 0...30, using: &random))
                    let names = expected.filter { $0.deadline <= now }
                    expected.removeAll { $0.deadline <= now }
                    #expect(due(&table, at: now).sorted() == names.map(\.name).sorted())
                }
                #expect(table.count == expected.count)
                #expect((table.nextDeadline ?? .distantFuture) <= (expected.map(\.deadline).min() ?? .distantFuture))
            }
        }
    }
}
