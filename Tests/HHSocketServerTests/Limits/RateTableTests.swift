// SPDX-License-Identifier: Apache-2.0
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

/// The rates of addresses and identities, in virtual time.
@Suite struct RateTableTests {
    @Test func eachKeyHasABucketOfItsOwn() {
        var table = RateTable<String>(RequestRate(perSecond: 1, burst: 2), maximumCount: 10)
        for isLetThrough in [true, true, false] { #expect(table.take("ann", now: start) == isLetThrough) }
        #expect(table.take("bob", now: start) == true)
        #expect(table.take("ann", now: start + .seconds(1)) == true)
    }

    @Test func fullBucketsAreForgotten() {
        var table = RateTable<Int>(RequestRate(perSecond: 1, burst: 2), maximumCount: 1_000)
        for key in 0..<1_000 { #expect(table.take(key, now: start) == true) }
        #expect(table.count == 1_000)
        // Each new key has some older ones forgotten.
        for key in 1_000..<1_500 { #expect(table.take(key, now: start + .seconds(10)) == true) }
        #expect(table.count <= 600)
    }

    @Test func itIsBoundedAndForgetsTheFullest() {
        var table = RateTable<Int>(RequestRate(perSecond: 0.001, burst: 10), maximumCount: 3)
        for _ in 0..<9 { #expect(table.take(1, now: start) == true) }
        for key in [2, 3] { #expect(table.take(key, now: start) == true) }
        #expect(table.take(4, now: start) == true)
        #expect(table.count == 3)
        // An exhausted key is kept as long as there are others worth less.
        for isLetThrough in [true, false] { #expect(table.take(1, now: start) == isLetThrough) }
    }

    /// In the long run no key exceeds its rate while the table knows it; the table never exceeds its size.
    @Test func randomHistoriesKeepThePromises() {
        for seed in 0..<UInt64(min(historyCount, 20_000) / 10) {
            var random = SeededGenerator(seed: seed)
            let rate = RequestRate(
                perSecond: Double(Int.random(in: 1...20, using: &random)),
                burst: Int.random(in: 1...10, using: &random)
            )
            let keys = Int.random(in: 1...8, using: &random)
            let maximumCount = Int.random(in: 1...10, using: &random)
            var table = RateTable<Int>(rate, maximumCount: maximumCount)
            var (taken, now) = ([Int: Int](), start)
            for _ in 0..<300 {
                now = now + .milliseconds(Int64.random(in: 0...200, using: &random))
                let key = Int.random(in: 0..<keys, using: &random)
                if table.take(key, now: now) { taken[key, default: 0] += 1 }
                #expect(table.count <= min(keys, maximumCount))
            }
            guard keys <= maximumCount else { continue }
            let seconds = Double((now - start).nanoseconds) / 1e9
            for (key, count) in taken {
                #expect(Double(count) <= seconds * rate.perSecond + Double(rate.burst), "seed \(seed), key \(key)")
            }
        }
    }

    @Test func allConnectionsShareThem() {
        let rates = SharedRates<String>(RequestRate(perSecond: 0.001, burst: 5))
        let results = (0..<10).map { _ in rates?.take("ann", now: start) }
        #expect(results.count { $0 == true } == 5)
        #expect(rates?.take("bob", now: start) == true)
        #expect(SharedRates<String>(nil) === nil)
    }
}
