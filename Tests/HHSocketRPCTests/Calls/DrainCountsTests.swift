// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import TestSupport
import Testing

@testable import HHSocketRPC

@Suite struct DrainCountsTests {
    private func drained(_ counts: inout DrainCounts) -> Set<UInt64> {
        var drained: Set<UInt64> = []
        while let connection = counts.nextDrained() {
            #expect(drained.insert(connection.number).inserted)
        }
        #expect(!counts.hasDrained)
        return drained
    }

    /// Calls end on connections that drain, that were lost, and that never drained: each of the first has drained once,
    /// after its last call.
    @Test(arguments: 0..<10)
    func randomHistoriesAreThoseOfCounters(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        var counts = DrainCounts()
        var model: [UInt64: Int] = [:]
        var expected: Set<UInt64> = []
        for number in 1...2_000 as ClosedRange<UInt64> {
            let other = UInt64.random(in: max(number, 10) - 9...number, using: &generator)
            switch Int.random(in: 0..<10, using: &generator) {
            case 0..<3:
                let inFlight = Int.random(in: 0..<4, using: &generator)
                counts.begin(ConnectionID(number: number), inFlight: inFlight)
                if inFlight > 0 { model[number] = inFlight } else { expected.insert(number) }
            case 3..<8:
                counts.callEnded(on: ConnectionID(number: other))
                guard let count = model[other] else { break }
                model[other] = count == 1 ? nil : count - 1
                if count == 1 { expected.insert(other) }
            case 8:
                counts.connectionWasLost(ConnectionID(number: other))
                model[other] = nil
            default:
                #expect(counts.hasDrained == !expected.isEmpty)
                #expect(self.drained(&counts) == expected)
                expected = []
            }
        }
        #expect(self.drained(&counts) == expected)
    }
}
