// SPDX-License-Identifier: Apache-2.0
/// The time in which calls count, in nanoseconds of ``Uptime``: from `begin` to just before `end`.
struct MeasuredWindow: Sendable, Equatable {
    private(set) var begin: UInt64
    private(set) var end: UInt64

    /// - Parameters:
    ///   - origin: The time at which the first call starts.
    ///   - warmup: The time from there in which nothing counts, in seconds.
    ///   - seconds: The time after that in which everything counts.
    init(origin: UInt64, warmup: Double, seconds: Double) {
        self.begin = origin + UInt64(warmup * 1e9)
        self.end = self.begin + UInt64(seconds * 1e9)
    }

    @inline(__always)
    func contains(_ time: UInt64) -> Bool { self.begin <= time && time < self.end }

    /// Ends the window at `time` if that is earlier, but not before its beginning.
    mutating func cut(at time: UInt64) {
        self.end = min(self.end, max(self.begin, time))
    }

    var seconds: Double { Double(self.end - self.begin) * 1e-9 }
}
