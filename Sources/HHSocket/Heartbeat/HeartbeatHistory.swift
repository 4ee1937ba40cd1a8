/// What pings on idle connections have shown about a network: the ground on which a ``HeartbeatStrategy`` decides.
///
/// A ping counts where the connection had been idle both ways for the interval, since only such a one shows whether the
/// network keeps idle connections for that time.
public struct HeartbeatHistory: Sendable, Hashable {
    /// Pings one after the other with the same interval and the same outcome.
    public struct Run: Sendable, Hashable, Codable {
        /// How long the connection had been idle before each ping.
        public var interval: Duration
        /// Whether the connection was still alive.
        public var isAnswered: Bool
        /// How many pings they are, 1 or more.
        public var count: Int

        /// - Parameter count: 1 by default.
        public init(interval: Duration, isAnswered: Bool, count: Int = 1) {
            self.interval = interval
            self.isAnswered = isAnswered
            self.count = count
        }
    }

    /// How many runs are kept; the oldest are dropped.
    public static let maximumRuns = 64

    /// The runs, oldest first. No two neighbours have the same interval and outcome.
    public private(set) var runs: [Run] = []
    /// Whether the app is in use. False where nobody says so, as in a process that is no app.
    public var isApplicationActive: Bool

    /// A history from runs that were kept somewhere. What cannot be is put right: runs of less than one ping are
    /// dropped, intervals are brought into 1 ms to 365 days, equal neighbours merge, and only the latest 64 runs are
    /// kept.
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
    ///   - interval: How long the connection had been idle.
    ///   - isAnswered: Whether it was still alive.
    public mutating func record(interval: Duration, isAnswered: Bool) {
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
    /// This, or the nearest that makes sense between two pings: 1 ms to 365 days. Sums of such never overflow.
    var asHeartbeatInterval: Duration {
        min(max(self, .milliseconds(1)), .seconds(365 * 24 * 3_600))
    }
}
