// SPDX-License-Identifier: Apache-2.0
public import HHSocketLink
import NIOCore

/// The treatment of clients when a server shuts down.
public struct ShutdownPolicy: Sendable {
    /// The time that requests in flight may take, and that clients may stay after their go-away. 10 s by default.
    /// Remaining requests are then cancelled and connections closed.
    public var gracePeriod = Duration.seconds(10)
    /// The range of the random time for which each client is asked to avoid this server, so that not all return at
    /// once. From 0 to 2 s by default, and no more than ``gracePeriod``. Clients may use other servers immediately.
    public var retryAfter = Duration.zero...Duration.seconds(2)
    /// Servers that may be used instead, best first. Empty by default: clients use the servers that they know
    /// themselves.
    public var otherEndpoints: [Endpoint] = []
    /// The reason, as text for people.
    public var reason = "the server shuts down"

    package init() {}

    /// The time over which clients are notified, so that they do not all reach the next server at once: a quarter of
    /// the grace.
    var announcingTime: TimeAmount { .nanoseconds(TimeAmount(clamping: self.gracePeriod).nanoseconds / 4) }

    /// The go-away of one client.
    ///
    /// - Parameter share: Which part of the range of waits is its own, from 0 to 1; drawn at random for each.
    func notice(share: Double) -> GoAway {
        let range = self.retryAfter
        let wait = range.lowerBound + (range.upperBound - range.lowerBound) * share
        return GoAway(reason: self.reason, retryAfter: wait, endpoints: self.otherEndpoints)
    }
}
