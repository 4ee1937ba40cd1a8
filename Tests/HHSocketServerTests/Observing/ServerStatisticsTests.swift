// SPDX-License-Identifier: Apache-2.0
import Testing

@testable import HHSocketServer

@Suite struct ServerStatisticsTests {
    @Test func countsAreMovedCounterByCounter() {
        var sum = ServerStatistics()
        let counts = SessionCounts()
        for counter in ServerCounter.allCases {
            sum[counter] = 1_000 + counter.rawValue
            counts.count(counter, by: 1 + counter.rawValue)
        }
        let other = counts.statistics
        counts.move(to: &sum)
        #expect(counts.statistics == ServerStatistics())
        for counter in ServerCounter.allCases {
            #expect(sum[counter] == 1_001 + 2 * counter.rawValue, "\(counter)")
        }
        sum += other
        #expect(sum[.connectionsAccepted] == 1_002)
    }
}
