// SPDX-License-Identifier: Apache-2.0
import Testing

@testable import HHSocketServer

@Suite struct ServerStatisticsTests {
    /// Returns statistics with a different number for each counter, so that a confusion is detected.
    private func counted(from first: Int) -> ServerStatistics {
        var statistics = ServerStatistics()
        for (offset, counter) in ServerStatistics.all.enumerated() {
            statistics[keyPath: counter.path] = first + offset
        }
        return statistics
    }

    @Test func countsAreMovedCounterByCounter() {
        var sum = self.counted(from: 1_000)
        var counted = self.counted(from: 1)
        counted.move(to: &sum)
        #expect(counted == ServerStatistics())
        for (offset, counter) in ServerStatistics.all.enumerated() {
            #expect(sum[keyPath: counter.path] == 1_001 + 2 * offset, "\(counter.name)")
        }
        sum += self.counted(from: 1)
        #expect(sum.connectionsAccepted == 1_002)
    }

    @Test func countersAreAllThatIsStored() {
        let children = Mirror(reflecting: ServerStatistics()).children
        #expect(children.allSatisfy { $0.value is Int })
        #expect(MemoryLayout<ServerStatistics>.size == children.count * MemoryLayout<Int>.size)
    }
}
