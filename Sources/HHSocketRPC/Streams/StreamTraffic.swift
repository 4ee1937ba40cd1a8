// SPDX-License-Identifier: Apache-2.0
/// The traffic of a stream since it was opened, in bytes.
package struct StreamTraffic: Hashable, Sendable {
    /// The cost of the sent frames of items.
    package var sent: UInt64
    /// The cost of the received items, including an incomplete frame.
    package var received: UInt64
    /// The number of bytes of the whole connection that the peer's TCP has acknowledged since the connection was made;
    /// nil if the system does not provide it.
    package var acknowledgedOnConnection: UInt64?
}
