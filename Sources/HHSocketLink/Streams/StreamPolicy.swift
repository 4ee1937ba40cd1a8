// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The limits of one side of a connection on its streams.
///
/// ```swift
/// configuration.streams = StreamPolicy(streamWindow: 1 << 20)
/// ```
/// The windows bound the unread items: a side that does not read stops the other once a window is full, on that stream,
/// or on all streams of the connection together. An item counts with its length, as sent, and 16 bytes for each of its
/// frames.
public struct StreamPolicy: Hashable, Sendable {
    /// The amount that may wait unread on a stream, in bytes; 1 to 4,294,967,295. 524,288 by default.
    public var streamWindow: Int
    /// The amount that may wait unread on all streams of a connection together, in bytes; 1 to 4,294,967,295. 4,194,304
    /// by default.
    public var connectionWindow: Int
    /// The time after which a stream without an item, or a credit that moves it, ends; nil: never. 10 minutes by
    /// default.
    public var idleLimit: Duration?
    /// The number of streams that a client may have open on a connection. A client keeps to the smaller number of both
    /// sides'; further streams wait. 100 by default.
    public var maximumStreams: Int
    /// The largest number of received bytes that a connection may hold, on streams and in pieces: items that were not
    /// taken, and incomplete payloads. Payloads beyond it fail. 64 MiB by default.
    public var maximumHeldBytes: Int

    /// - Parameters:
    ///   - streamWindow: The amount that may wait unread on a stream, in bytes; 524,288 by default.
    ///   - connectionWindow: The amount that may wait unread on a connection, in bytes; 4,194,304 by default.
    ///   - idleLimit: The time without progress after which a stream ends; 10 minutes by default.
    ///   - maximumStreams: The number of streams that a client may have open on a connection; 100 by default.
    ///   - maximumHeldBytes: The largest number of received bytes that a connection may hold; 64 MiB by default.
    public init(
        streamWindow: Int = 524_288,
        connectionWindow: Int = 4_194_304,
        idleLimit: Duration? = .seconds(600),
        maximumStreams: Int = 100,
        maximumHeldBytes: Int = 64 << 20
    ) {
        self.streamWindow = streamWindow
        self.connectionWindow = connectionWindow
        self.idleLimit = idleLimit
        self.maximumStreams = maximumStreams
        self.maximumHeldBytes = maximumHeldBytes
    }

    /// The windows that hello announces; numbers outside of its range are clamped.
    package var windows: StreamWindows {
        StreamWindows(stream: Self.clamp(self.streamWindow), connection: Self.clamp(self.connectionWindow))
    }

    /// The number of streams that a client may have open, at least 1.
    package var streamLimit: UInt32 { Self.clamp(self.maximumStreams) }

    private static func clamp(_ number: Int) -> UInt32 { UInt32(clamping: max(1, number)) }

    /// The settings of a connection's streams, on terms that hello has agreed on.
    ///
    /// - Parameters:
    ///   - flags: The flags that hello has agreed on.
    ///   - maximumPayloadLength: The longest payload that is received, in bytes.
    package func settings(
        _ terms: StreamTerms,
        flags: UInt32,
        format: WireFormat,
        maximumPayloadLength: Int
    ) -> StreamSettings {
        var settings = StreamSettings(terms: terms, flags: flags, format: format)
        settings.maximumPayloadLength = maximumPayloadLength
        settings.maximumHeldBytes = self.maximumHeldBytes
        settings.idleLimit = self.idleLimit.map { TimeAmount(clamping: $0) }
        return settings
    }
}
