// SPDX-License-Identifier: Apache-2.0
import Foundation

/// A chart of latencies in text, with one row from each 1, 2 or 5 to the next.
struct LatencyChart {
    private static let width = 40

    let lines: [String]

    /// - Parameter values: Latencies, shortest first, with their counts.
    init(_ values: [(nanoseconds: UInt64, count: UInt64)]) {
        var rows: [(bounds: Range<UInt64>, count: UInt64)] = []
        for (value, count) in values {
            var bounds = rows.last?.bounds ?? Self.bounds(around: value)
            // Empty rows between two others are drawn too: a gap is worth seeing.
            while value >= bounds.upperBound {
                bounds = Self.bounds(around: bounds.upperBound)
                rows.append((bounds, 0))
            }
            if rows.isEmpty { rows.append((bounds, 0)) }
            rows[rows.count - 1].count += count
        }
        let total = rows.reduce(0) { $0 + $1.count }
        let most = rows.map(\.count).max() ?? 0
        let labels = rows.map { row in
            (
                Self.text(nanoseconds: Double(row.bounds.lowerBound)),
                Self.text(nanoseconds: Double(row.bounds.upperBound))
            )
        }
        let longestLabel = labels.flatMap { [$0.0.count, $0.1.count] }.max() ?? 0
        func padded(_ text: String, _ width: Int) -> String {
            String(repeating: " ", count: max(0, width - text.count)) + text
        }
        self.lines = zip(rows, labels).map { row, label in
            // A row that is not empty has a visible bar.
            let length = row.count == 0 ? 0 : max(1, Int(Double(row.count) / Double(most) * Double(Self.width)))
            let bar = String(repeating: "#", count: length) + String(repeating: " ", count: Self.width - length)
            let share = String(format: "%5.1f %%", Double(row.count) / Double(total) * 100)
            return "\(padded(label.0, longestLabel)) to \(padded(label.1, longestLabel))  \(bar) \(share)"
        }
    }

    /// Returns the bounds of the row of `value`. The first begins at 0.
    static func bounds(around value: UInt64) -> Range<UInt64> {
        var decade: UInt64 = 1_000
        guard value >= decade else { return 0..<decade }
        while value / 10 >= decade { decade *= 10 }
        switch value / decade {
        case 1: return decade..<2 * decade
        case 2..<5: return 2 * decade..<5 * decade
        default: return 5 * decade..<10 * decade
        }
    }

    /// Formats a span in a suitable unit, with three digits.
    static func text(nanoseconds: Double) -> String {
        let units = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")]
        // Half a thousandth less, so that a number that would round to 1000 is 1 of the next unit.
        let (size, unit) = units.first { nanoseconds >= $0.0 * 0.9995 } ?? (1, "ns")
        let number = nanoseconds / size
        let digits = number < 9.995 ? 2 : number < 99.95 ? 1 : 0
        var text = String(format: "%.\(digits)f", number)
        while text.contains("."), let last = text.last, last == "0" || last == "." {
            text.removeLast()
            if last == "." { break }
        }
        return "\(text) \(unit)"
    }
}
