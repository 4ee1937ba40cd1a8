// SPDX-License-Identifier: Apache-2.0
import Foundation
import Histogram

/// The latencies of calls, precise to a thousandth.
struct Latencies: Sendable {
    /// The longest latency, an hour in nanoseconds; longer ones are clamped to it.
    static let longest: UInt64 = 3_600_000_000_000

    private var histogram = Histogram<UInt64>(
        lowestDiscernibleValue: 1,
        highestTrackableValue: Latencies.longest,
        numberOfSignificantValueDigits: .three
    )

    @inline(__always)
    mutating func record(nanoseconds: UInt64) {
        self.histogram.record(min(nanoseconds, Self.longest))
    }

    mutating func add(_ other: Latencies) {
        self.histogram.add(other.histogram)
    }

    var count: Int { Int(clamping: self.histogram.totalCount) }

    /// Nil if nothing was recorded.
    func nanoseconds(atPercentile percentile: Double) -> Double? {
        self.count == 0 ? nil : Double(min(self.histogram.valueAtPercentile(percentile), self.histogram.maxRecorded))
    }

    /// Nil if nothing was recorded.
    var longest: Double? { self.count == 0 ? nil : Double(self.histogram.maxRecorded) }

    func microseconds(atPercentile percentile: Double) -> Double? {
        self.nanoseconds(atPercentile: percentile).map { $0 / 1e3 }
    }

    var longestMicroseconds: Double? { self.longest.map { $0 / 1e3 } }

    /// Percentiles and the longest, for people. Nil if nothing was recorded.
    func text(percentiles: [Double]) -> String? {
        guard let longest = self.longest else { return nil }
        let parts = percentiles.compactMap { percentile in
            self.nanoseconds(atPercentile: percentile)
                .map { "p\(String(format: "%g", percentile)) \(LatencyChart.text(nanoseconds: $0))" }
        }
        return (parts + ["longest \(LatencyChart.text(nanoseconds: longest))"]).joined(separator: ", ")
    }

    /// The recorded values, shortest first, with their counts.
    var values: [(nanoseconds: UInt64, count: UInt64)] {
        self.histogram.recordedValues().map { ($0.value, $0.count) }
    }
}
