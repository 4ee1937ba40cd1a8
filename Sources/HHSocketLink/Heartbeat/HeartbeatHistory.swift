// SPDX-License-Identifier: Apache-2.0
/// The outcomes of pings on idle connections in one network, from which a ``HeartbeatStrategy`` decides.
///
/// A ping counts if the connection had been idle both ways for the interval, since only such a ping shows whether the
/// network keeps idle connections for that time.
public struct HeartbeatHistory: Sendable, Hashable {
    /// Consecutive pings with the same interval and the same outcome.
    public struct Run: Sendable, Hashable, Codable {
        /// The time the connection had been idle before each ping.
        public var interval: Duration
        /// Whether the connection was still alive.
        public var isAnswered: Bool
        /// The number of pings, 1 or more.
        public var count: Int

        /// - Parameters:
        ///   - interval: The time the connection had been idle before each ping.
        ///   - isAnswered: Whether the connection was still alive.
        ///   - count: 1 by default.
        public init(interval: Duration, isAnswered: Bool, count: Int = 1) {
            self.interval = interval
            self.isAnswered = isAnswered
            self.count = count
        }
    }

    /// The number of runs that are kept; the oldest are dropped.
    package static let maximumRuns = 64

    /// The runs, oldest first. No two neighbours have the same interval and outcome.
    public private(set) var runs: [Run] = []
    /// Whether the app is in use. False unless reported, as in a process that is not an app.
    public package(set) var isApplicationActive: Bool

    /// Creates a history from stored runs. Invalid values are corrected: runs of less than one ping are dropped,
    /// intervals are clamped to 1 ms to 365 days, equal neighbours merge, and only the latest 64 runs are kept.
    ///
    /// - Parameters:
    ///   - runs: Oldest first; none by default.
    ///   - isApplicationActive: False by default.
    public init(runs: [Run] = [], isApplicationActive: Bool = false) {
        self.isApplicationActive = isApplicationActive
        for run in runs { self.append(run) }
    }

    /// Adds the outcome of a ping.
    ///
    /// - Parameters:
    ///   - interval: The time the connection had been idle.
    ///   - isAnswered: Whether it was still alive.
    package mutating func record(interval: Duration, isAnswered: Bool) {
        self.append(Run(interval: interval, isAnswered: isAnswered))
    }

    private mutating func append(_ run: Run) {
        guard run.count > 0 else { return }
        let interval = run.interval.asHeartbeatInterval
        if let last = self.runs.last, last.interval == interval, last.isAnswered == run.isAnswered {
            self.runs[self.runs.count - 1].count = last.count.addingClamped(run.count)
        } else {
            self.runs.append(Run(interval: interval, isAnswered: run.isAnswered, count: run.count))
            if self.runs.count > Self.maximumRuns { self.runs.removeFirst(self.runs.count - Self.maximumRuns) }
        }
    }
}

extension Duration {
    /// The duration clamped to what makes sense between two pings: 1 ms to 365 days. Sums of such durations never
    /// overflow.
    var asHeartbeatInterval: Duration {
        min(max(self, .milliseconds(1)), .seconds(365 * 24 * 3_600))
    }
}
