import NIOCore

/// How the channels of links are set up.
package enum LinkChannel {
    /// What a channel buffers before it takes no more: 128 KiB, until half of it is left. With what was gathered already when that
    /// happens, two payloads that are not sliced at most, it is 256 KiB: no more than one read.
    package static let waterMarks = ChannelOptions.Types.WriteBufferWaterMark(low: 64 << 10, high: 128 << 10)
}
