// SPDX-License-Identifier: Apache-2.0
/// The rate of wrong calls at which the client fails over to another server.
///
/// Calls count as wrong that end with `unknown` (404), `lostPacket` (302) or `checksumMismatch`, and those that were
/// sent and not answered in time. Calls do not count at all that were cancelled, not run according to the server, never
/// sent, or lost with their connection: these have other causes.
public struct ErrorRatePolicy: Hashable, Sendable {
    /// The number of the latest calls that are considered.
    package var windowLength: Int
    /// The age above which ended calls are not considered.
    package var maximumAge: Duration
    /// The number of considered calls below which nothing is concluded.
    package var minimumCalls: Int
    /// The share of wrong calls from which the client fails over, 0 to 1.
    package var threshold: Double

    /// - Parameters:
    ///   - windowLength: The number of the latest calls that are considered; 100 by default. Less than 1 counts as 1.
    ///   - maximumAge: The age beyond which a call no longer counts; 300 s by default.
    ///   - minimumCalls: The number of considered calls below which nothing is concluded; 40 by default. Less than 1
    ///     counts as 1.
    ///   - threshold: The share of wrong calls from which the client fails over, 0 to 1; 0.1 by default.
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
