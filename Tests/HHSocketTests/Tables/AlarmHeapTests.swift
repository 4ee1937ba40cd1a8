// SPDX-License-Identifier: Apache-2.0
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// Owners move and lose their alarms, and time passes: every alarm that is still wanted comes in time and in order. The
/// model is a dictionary of what is wanted.
private enum AlarmHistory {
    /// A mistake of the model.
    enum Flaw: CaseIterable {
        case cancelledAlarmsAreWanted, timesAreLater, dueAlarmsStay, theSmallestOwnerIsTheFirst
    }

    private struct World {
        let flaw: Flaw?
        var heap = AlarmHeap<Int, Int>()
        var wanted: [Int: Int] = [:]
        var now = 0

        mutating func set(_ time: Int, _ owner: Int) {
            self.wanted[owner] = self.flaw == .timesAreLater ? time + 1 : time
            self.heap.insert(time, owner)
        }

        mutating func sweep() {
            let (wanted, later) = (self.wanted, self.flaw == .timesAreLater ? 1 : 0)
            self.heap.sweep { wanted[$0.key] == $0.time + later }
        }

        /// Returns the first deviation.
        mutating func pass(until now: Int) -> String? {
            self.now = now
            var last = Int.min
            while let alarm = self.heap.popDue(now: now) {
                guard alarm.time >= last, alarm.time <= now else { return "\(alarm) after \(last), at \(now)" }
                last = alarm.time
                if self.wanted[alarm.key] == alarm.time, self.flaw != .dueAlarmsStay { self.wanted[alarm.key] = nil }
            }
            if let late = self.wanted.first(where: { $0.value <= now }) { return "\(late) did not come" }
            return self.heap.first.map { $0.time > now } ?? true ? nil : "a due alarm stays"
        }
    }

    /// Returns the first deviation from the model.
    static func run(seed: UInt64, steps: Int = 2_000, flaw: Flaw? = nil) -> String? {
        var generator = SeededGenerator(seed: seed)
        var world = World(flaw: flaw)
        for step in 0..<steps {
            switch Int.random(in: 0..<10, using: &generator) {
            case 0..<6:
                // Often the latest of all, and often one of several at the same time.
                let delay = step % 3 == 0 ? 1_000 : Int.random(in: 0..<200, using: &generator)
                world.set(world.now + delay, Int.random(in: 0..<50, using: &generator))
                guard world.heap.isCrowded(owners: world.wanted.count) || step % 50 == 0 else { continue }
                world.sweep()
                if world.heap.isCrowded(owners: world.wanted.count) { return "it is crowded after it was swept" }
            case 6..<8:
                let owner = Int.random(in: 0..<50, using: &generator)
                guard flaw != .cancelledAlarmsAreWanted else {
                    world.heap.sweep { $0.key != owner }
                    continue
                }
                world.wanted[owner] = nil
            case 8:
                let wanted = world.wanted
                world.heap.dropFirst { wanted[$0.key] == $0.time }
                let first =
                    flaw == .theSmallestOwnerIsTheFirst
                    ? wanted.min { $0.key < $1.key }?.value : wanted.values.min()
                if world.heap.first?.time != first { return "the first is not \(String(describing: first))" }
            default:
                if let found = world.pass(until: world.now + Int.random(in: 0..<300, using: &generator)) {
                    return found
                }
            }
        }
        if let found = world.pass(until: .max) { return found }
        return world.heap.count == 0 && world.heap.first == nil && world.wanted.isEmpty ? nil : "alarms are left"
    }
}

@Suite struct AlarmHeapTests {
    @Test func randomHistoriesAreThoseOfASortedList() {
        for seed in 0..<UInt64(scaled(40)) {
            if let found = AlarmHistory.run(seed: seed) { Issue.record("\(found), seed \(seed)") }
        }
    }

    @Test(arguments: AlarmHistory.Flaw.allCases)
    private func flawIsFound(_ flaw: AlarmHistory.Flaw) {
        #expect((0..<20).contains { AlarmHistory.run(seed: $0, steps: 500, flaw: flaw) != nil })
    }

    @Test func sweepKeepsExactlyWhatIsWantedInOrder() {
        var heap = AlarmHeap<Int, Int>()
        for number in 0..<1_000 { heap.insert(number * 7_919 % 1_000, number) }
        #expect(heap.isCrowded(owners: 100) && !heap.isCrowded(owners: 500))
        // The first is not among them.
        heap.sweep { $0.key % 3 == 1 }
        #expect(heap.count == 333)
        var keys: [Int] = []
        while let alarm = heap.popDue(now: 999) { keys.append(alarm.key) }
        #expect(keys == (0..<1_000).filter { $0 % 3 == 1 }.sorted { $0 * 7_919 % 1_000 < $1 * 7_919 % 1_000 })
    }
}
