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
        #expect(sum.connectionsAccepted == 1_002)
    }

    /// The properties are stored in the order of the counters.
    @Test func propertiesAreThoseOfTheCounters() {
        var statistics = ServerStatistics()
        for counter in ServerCounter.allCases { statistics[counter] = 1 + counter.rawValue }
        let children = Mirror(reflecting: statistics).children
        #expect(children.map(\.label) == ServerCounter.allCases.map { "\($0)" })
        #expect(children.compactMap { $0.value as? Int } == ServerCounter.allCases.map { 1 + $0.rawValue })
        #expect(MemoryLayout<ServerStatistics>.size == ServerCounter.allCases.count * MemoryLayout<Int>.size)
        statistics.requests += 1
        #expect(statistics[.requests] == 2 + ServerCounter.requests.rawValue)
    }
}
