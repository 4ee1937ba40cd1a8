// SPDX-License-Identifier: Apache-2.0
/// The traffic of a stream since it was opened, in bytes.
struct StreamTraffic: Hashable, Sendable {
    /// The cost of the frames of items that have left.
    var sent: UInt64
    /// The cost of what has come of items, the part of a frame that is not whole included.
    var received: UInt64
    /// The number of bytes of the whole connection that the peer's TCP has acknowledged since the connection was made;
    /// nil where the system does not tell.
    var acknowledgedOnConnection: UInt64?
}
