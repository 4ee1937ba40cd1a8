// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// Work whose amount must grow no faster than its input.
///
/// It is measured as processor time of the calling thread, of which other processes take nothing, and the shortest of
/// several runs counts: noise only makes a run longer. In each run the smaller input is worked on four times: the
/// shorter a measurement, the more easily it finds a moment without noise.
package struct WorkGrowth: CustomStringConvertible {
    /// The shortest times for the smaller input, and for one that is ``factor`` times as large, in seconds.
    package private(set) var times: (small: Double, large: Double) = (.infinity, .infinity)

    private static let factor = 4

    /// Repeats the work until it has been linear, at least twice: a busy machine may disturb each of a few runs, while
    /// quadratic work is never linear.
    ///
    /// - Parameters:
    ///   - count: The number of units in the smaller input.
    ///   - runs: The largest number of repetitions.
    ///   - prepare: Makes the input with this number of units, which is not measured, and returns the work.
    package init(_ count: Int, runs: Int = 24, _ prepare: (Int) throws -> () throws -> Void) throws {
        // The first run is cold, and work that grows too fast could pass beside it.
        for _ in 0..<Self.factor { _ = try Self.time(prepare(count)) }
        for run in 1...runs {
            var small = 0.0
            for _ in 0..<Self.factor { small += try Self.time(prepare(count)) }
            self.times.small = min(self.times.small, small / Double(Self.factor))
            self.times.large = min(self.times.large, try Self.time(prepare(Self.factor * count)))
            if run >= 2, self.isLinear { break }
        }
    }

    private static func time(_ work: () throws -> Void) rethrows -> Double {
        let start = ThreadTime.seconds
        try work()
        return ThreadTime.seconds - start
    }

    /// Whether four times the units take at most six times the work: with quadratic work it is sixteen times.
    package var isLinear: Bool { self.times.large <= 6 * self.times.small }

    package var description: String {
        "\(self.times.small) s, and \(self.times.large) s for four times the units"
    }
}
