// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The setup of links' channels.
package enum LinkChannel {
    /// The number of bytes that a channel buffers before it accepts no more: 128 KiB, until half of them remain. Bytes
    /// that the link has gathered by then are passed on nevertheless: at most ``LinkSettings/outputLimit`` and one
    /// payload that is not sliced.
    package static let waterMarks = ChannelOptions.Types.WriteBufferWaterMark(low: 64 << 10, high: 128 << 10)
    /// The number of bytes sent after which the channel's remaining bytes are counted.
    package static let uncheckedBytes = 64 << 10
    /// The number of bytes of an incomplete unit from which nothing more of it is read while memory is short.
    package static let longUnitBytes = 64 << 10
    /// The number of consecutive pauses after which such a unit is read once although memory is still short: 2 s with
    /// the pauses of a server.
    static let pausesInLongUnits = 40
    /// The time for which units are still taken that arrived before the connection was lost.
    static let lastUnitsTime = TimeAmount.milliseconds(10)
}
