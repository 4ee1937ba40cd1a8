/// Finds out how many requests can be in flight without waiting for one another, from how long they take: as long as
/// they take hardly longer than when there were few, there may be more; when they begin to queue, fewer.
///
/// The limit is multiplied, after each window, by the ratio of the shortest time seen to the present average (between
/// one half and one), and the square root of the limit is added for bursts: the gradient of Netflix's
/// concurrency-limits. Now and then the shortest time is found out anew, with a quarter as many in flight for a moment.
public struct AdaptiveConcurrency: Hashable, Sendable {
    /// The limit at the beginning; 100 by default.
    public var initial = 100
    /// The fewest that are always let in; 10 by default, 1 at least.
    public var minimum = 10
    /// The most that are ever let in; 10,000 by default.
    public var maximum = 10_000
    /// The ratio of the average time of requests to the shortest above which there are too many: 2 by default.
    public var tolerance = 2.0

    public init() {}
}
