// SPDX-License-Identifier: Apache-2.0
/// The part of the bytes acknowledged by a connection's peer that belongs to one stream.
///
/// TCP acknowledges the bytes of a connection, regardless of their stream. A stream is credited with as many as it has
/// sent, and no more: bytes of others then count for it only while its own bytes follow them, and a stream that sends
/// nothing gets nothing.
struct AcknowledgedShare: Hashable, Sendable {
    /// The number of bytes that the peer had acknowledged at the last update; nil before.
    private var last: UInt64?
    /// The number of bytes that the stream was credited with.
    private(set) var credited: UInt64 = 0

    init() {}

    /// - Parameters:
    ///   - sent: The number of bytes that the stream has sent so far.
    ///   - acknowledged: The number of bytes acknowledged on the connection so far; nil if the system does not provide
    ///     it.
    /// - Returns: The number of bytes that the stream is credited with since the last time.
    mutating func update(sent: UInt64, acknowledged: UInt64?) -> UInt64 {
        guard let acknowledged else { return 0 }
        guard let last = self.last else {
            self.last = acknowledged
            return 0
        }
        self.last = max(last, acknowledged)
        let growth = acknowledged > last ? acknowledged - last : 0
        let share = min(growth, sent > self.credited ? sent - self.credited : 0)
        self.credited += share
        return share
    }
}
