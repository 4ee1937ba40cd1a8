// SPDX-License-Identifier: Apache-2.0
/// Counts of a server since it started. Every number only grows.
///
/// ```swift
/// let refused = server.statistics[.connectionsRefused]
/// for counter in ServerCounter.allCases { print(counter, server.statistics[counter]) }
/// ```
public struct ServerStatistics: Hashable, Sendable {
    /// By the raw values of ``ServerCounter``.
    private var counts = [Int](repeating: 0, count: ServerCounter.allCases.count)

    package init() {}

    /// The number of a counter.
    public package(set) subscript(_ counter: ServerCounter) -> Int {
        get { self.counts[counter.rawValue] }
        set { self.counts[counter.rawValue] = newValue }
    }

    static func += (sum: inout Self, other: Self) {
        other.counts.withUnsafeBufferPointer { sum.add($0) }
    }

    /// Adds counts in the order of ``ServerCounter``.
    ///
    /// It wraps: 64 bits do not overflow in the lifetime of a server, and additions that cannot fail are vectorised.
    mutating func add(_ counts: UnsafeBufferPointer<Int>) {
        self.counts.withUnsafeMutableBufferPointer { sums in
            for index in sums.indices { sums[index] &+= counts[index] }
        }
    }
}
