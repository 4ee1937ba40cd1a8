/// When a server whose calls go wrong is left for another: not for one call, but for a rate.
///
/// Wrong are calls that end with `unknown` (404), `lostPacket` (302) or `checksumMismatch`, and those that left and
/// were not answered in time. Neither counted as wrong nor as right are calls that were cancelled, that the server says
/// it did not run, that never left, or that were lost with their connection: those tell of other things.
public struct ErrorRatePolicy: Hashable, Sendable {
    /// The number of calls that are considered, the latest. 100 by default.
    public var windowLength: Int
    /// Calls that ended longer ago are not looked at. 5 minutes by default.
    public var maximumAge: Duration
    /// With fewer calls nothing is concluded. 40 by default.
    public var minimumCalls: Int
    /// This part of them must be wrong: 0 to 1, 0.1 by default.
    public var threshold: Double

    /// - Parameters:
    ///   - windowLength: Less than 1 counts as 1.
    ///   - minimumCalls: Less than 1 counts as 1.
    public init(
        windowLength: Int = 100,
        maximumAge: Duration = .seconds(300),
        minimumCalls: Int = 40,
        threshold: Double = 0.1
    ) {
        self.windowLength = max(1, windowLength)
        self.maximumAge = maximumAge
        self.minimumCalls = max(1, minimumCalls)
        self.threshold = threshold
    }
}
