// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The treatment of pushes that arrive faster than a subscriber takes them. Each subscriber has a separate buffer.
///
/// Pushes are counted, not their bytes: each may be as large as ``/HHSocket/SocketConfiguration/maximumPayloadLength``.
/// A reader takes up to a sixteenth of the limit at once, 256 at most, and works through them; these do not count
/// towards the limit. A limit below 1 counts as 1.
public enum PushBufferingPolicy: Hashable, Sendable {
    /// At most this number wait; the oldest is dropped to make room for the next, and counted in
    /// ``ClientStatistics/droppedPushes``. For updates that replace earlier ones.
    case dropOldest(Int)
    /// At most this number wait; one that arrives when there is no room is dropped, and counted in
    /// ``ClientStatistics/droppedPushes``.
    case dropNewest(Int)
    /// Nothing is dropped. Once this number wait, the client stops reading from its server, until at most half as many
    /// wait.
    ///
    /// Pushes that the client has read by then are still delivered, so more can wait: up to those of one read (1 MiB),
    /// and when the server closes the connection, those in the kernel's buffer (some MiB).
    ///
    /// Only for a subscriber that is briefly behind: meanwhile **everything** on the connection is delayed:
    /// - Other subscribers' pushes, and the answers to calls, whose timeouts continue. A subscriber that waits for an
    ///   answer before it takes the next push may wait in vain.
    /// - Heartbeats are sent, but their answers are not awaited: the loss of a server is detected only later. The
    ///   server's own pings are not answered, so it may close the connection.
    /// - If the server stops reading while it cannot write, and anything must be sent, the connection is lost after
    ///   ``/HHSocket/SocketConfiguration/writeStallTimeout``.
    /// - A server may drop pushes that a client does not read. Those that are unread when this side closes the
    ///   connection are lost.
    case suspendReading(Int)

    /// ``dropOldest(_:)`` with 1,024.
    public static var `default`: PushBufferingPolicy { .dropOldest(1_024) }

    /// The number of pushes that may wait before the policy applies; 1 at least.
    private var limit: Int {
        switch self {
        case .dropOldest(let limit), .dropNewest(let limit), .suspendReading(let limit): max(1, limit)
        }
    }

    /// The bounds of a subscription's inbox. Readers take few pushes at once, compared with the limit.
    var bounds: InboxBounds {
        let atLimit: InboxBounds.AtLimit =
            switch self {
            case .dropOldest: .dropOldest
            case .dropNewest: .dropNewest
            case .suspendReading: .hold
            }
        var bounds = InboxBounds(atLimit, batch: min(max(1, self.limit / 16), 256), detaching: .waiting)
        bounds.count = self.limit
        bounds.endsWithTask = true
        return bounds
    }
}
