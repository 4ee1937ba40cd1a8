// SPDX-License-Identifier: Apache-2.0
/// A limit on requests in flight that follows from their duration: it rises while they take hardly longer than when
/// there were few, and falls when they begin to queue.
///
/// The limit is multiplied, after each window, by the ratio of the shortest time seen to the current average (between
/// one half and one), and the square root of the limit is added for bursts: the gradient of Netflix's
/// concurrency-limits. From time to time the shortest time is measured again, with a quarter as many in flight for a
/// moment. The limit begins at 100, and stays from 10 to 10,000; there are too many requests when they take twice the
/// shortest time on average.
public struct AdaptiveConcurrency: Hashable, Sendable {
    /// The limit at the beginning.
    package var initial = 100
    /// The smallest limit, at least 1.
    package var minimum = 10
    /// The largest limit.
    package var maximum = 10_000
    /// The ratio of the average time of requests to the shortest above which there are too many.
    package var tolerance = 2.0

    public init() {}
}
