// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

@Suite struct AlarmHeapTests {
    private func at(_ number: Int) -> NIODeadline { .uptimeNanoseconds(UInt64(number)) }

    /// Owners move and lose their alarms, and time passes: every alarm that is still wanted comes in time and in order.
    @Test(arguments: 0..<20)
    func randomHistoriesAreThoseOfASortedList(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        var heap = AlarmHeap<Int>()
        var wanted: [Int: NIODeadline] = [:]
        var now = 0
        for step in 0..<4_000 {
            switch Int.random(in: 0..<10, using: &generator) {
            case 0..<6:
                let owner = Int.random(in: 0..<50, using: &generator)
                // Often the latest of all, and often one of several at the same time.
                let time = self.at(now + (step % 3 == 0 ? 1_000 : Int.random(in: 0..<200, using: &generator)))
                wanted[owner] = time
                heap.insert(time, owner)
                if heap.isCrowded(owners: wanted.count) || step % 50 == 0 {
                    heap.sweep { wanted[$0.key] == $0.time }
                    #expect(!heap.isCrowded(owners: wanted.count))
                }
            case 6..<8:
                wanted[Int.random(in: 0..<50, using: &generator)] = nil
            case 8:
                heap.dropFirst { wanted[$0.key] == $0.time }
                #expect(heap.first?.time == wanted.values.min())
            default:
                now += Int.random(in: 0..<300, using: &generator)
                self.timePasses(until: self.at(now), &heap, &wanted)
            }
        }
        self.timePasses(until: .distantFuture, &heap, &wanted)
        #expect(wanted.isEmpty)
        #expect(heap.count == 0 && heap.first == nil)
    }

    private func timePasses(until now: NIODeadline, _ heap: inout AlarmHeap<Int>, _ wanted: inout [Int: NIODeadline]) {
        var last = NIODeadline.distantPast
        while let alarm = heap.popDue(now: now) {
            #expect(alarm.time >= last && alarm.time <= now)
            last = alarm.time
            if wanted[alarm.key] == alarm.time { wanted[alarm.key] = nil }
        }
        #expect(!wanted.values.contains { $0 <= now })
        #expect(heap.first.map { $0.time > now } ?? true)
    }

    @Test func sweepKeepsExactlyWhatIsWantedInOrder() {
        var heap = AlarmHeap<Int>()
        for number in 0..<1_000 { heap.insert(self.at(number * 7_919 % 1_000), number) }
        #expect(heap.isCrowded(owners: 100) && !heap.isCrowded(owners: 500))
        // The first is not among them.
        heap.sweep { $0.key % 3 == 1 }
        #expect(heap.count == 333)
        var keys: [Int] = []
        while let alarm = heap.popDue(now: self.at(999)) { keys.append(alarm.key) }
        #expect(keys == (0..<1_000).filter { $0 % 3 == 1 }.sorted { $0 * 7_919 % 1_000 < $1 * 7_919 % 1_000 })
    }
}
