// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// How the channels of links are set up.
package enum LinkChannel {
    /// The number of bytes that a channel buffers before it takes no more: 128 KiB, until half of it is left. What the
    /// link has gathered when that happens is passed on all the same: at most ``LinkSettings/outputLimit`` and one
    /// payload that is not sliced.
    package static let waterMarks = ChannelOptions.Types.WriteBufferWaterMark(low: 64 << 10, high: 128 << 10)
    /// The number of bytes sent after which it is looked at how many the channel still has.
    package static let uncheckedBytes = 64 << 10
}
