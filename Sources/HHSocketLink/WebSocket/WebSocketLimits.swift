// SPDX-License-Identifier: Apache-2.0
/// Bounds of received messages.
package struct WebSocketLimits: Hashable, Sendable {
    /// The longest message, in bytes, after decompression. 16 MiB by default.
    package var maximumMessageLength = 16 << 20
    /// The largest number of fragments of a message. 131,072 by default.
    package var maximumFragments = 131_072

    package init() {}
}
