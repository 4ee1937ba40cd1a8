/// The time that is measured, in nanoseconds of ``Uptime``: from its beginning to just before its end.
struct MeasuredWindow: Sendable, Equatable {
    private(set) var begin: UInt64
    private(set) var end: UInt64

    /// - Parameters:
    ///   - origin: When the first call starts.
    ///   - warmup: How long from there nothing counts.
    ///   - seconds: How long everything counts then.
    init(origin: UInt64, warmup: Double, seconds: Double) {
        self.begin = origin + UInt64(warmup * 1e9)
        self.end = self.begin + UInt64(seconds * 1e9)
    }

    @inline(__always)
    func contains(_ time: UInt64) -> Bool { self.begin <= time && time < self.end }

    /// Ends it earlier: not before it began, and not later than it was to.
    mutating func cut(at time: UInt64) {
        self.end = min(self.end, max(self.begin, time))
    }

    var seconds: Double { Double(self.end - self.begin) * 1e-9 }
}
