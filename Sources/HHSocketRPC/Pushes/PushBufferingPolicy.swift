/// The treatment of pushes that arrive faster than a subscriber takes them. Each subscriber has a buffer of its own.
///
/// Pushes are counted, not their bytes: each may be as large as ``SocketConfiguration/maximumPayloadLength``. A limit
/// below 1 counts as 1. A reader takes up to a sixteenth of the limit at once, 256 at most, and works through them;
/// these do not count.
public enum PushBufferingPolicy: Hashable, Sendable {
    /// At most this number wait; the oldest one makes room for the next and is lost, counted in
    /// ``ClientStatistics/droppedPushes``. For news that replace older news.
    case dropOldest(Int)
    /// At most this number wait; one that arrives when there is no room is lost, counted in
    /// ``ClientStatistics/droppedPushes``.
    case dropNewest(Int)
    /// Nothing is dropped. Once this number wait, the client stops reading from its server, until at most half as many
    /// wait.
    ///
    /// Pushes that the client has read by then are still delivered, so more can wait: up to those of one read (1 MiB),
    /// and when the server closes the connection, those that the kernel holds for it (some MiB).
    ///
    /// This is for a subscriber that is behind for moments only, for meanwhile **everything** on the connection is held
    /// up:
    /// - Other subscribers' pushes, and the answers to calls, whose timeouts run on. A subscriber that waits for an
    ///   answer before it takes the next push may so wait in vain.
    /// - Heartbeats are sent, and no answer is waited for: a server that vanishes is noticed only later. The server's
    ///   own pings are not answered, for which it may close the connection.
    /// - A server that reads no more as long as it cannot write costs the connection after
    ///   ``SocketConfiguration/writeStallTimeout``, if anything is to be sent.
    /// - A server may drop what a client does not read, and what has not been read when this side leaves the connection
    ///   goes with it.
    case suspendReading(Int)

    /// ``dropOldest(_:)`` with 1,024.
    public static var `default`: PushBufferingPolicy { .dropOldest(1_024) }

    /// The number of pushes that a reader takes at once, to go through them without locks: a sixteenth of the limit,
    /// 256 at most. So the pushes that a reader holds do not matter beside the limit.
    var batchLimit: Int { min(max(1, self.limit / 16), 256) }

    /// The number of pushes that may wait before the policy applies; 1 at least.
    var limit: Int {
        switch self {
        case .dropOldest(let limit), .dropNewest(let limit), .suspendReading(let limit): max(1, limit)
        }
    }
}
