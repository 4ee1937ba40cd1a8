// SPDX-License-Identifier: Apache-2.0
/// The amounts of items that one side of a connection is ready to receive, as announced in hello: the first credit.
package struct StreamWindows: Hashable, Sendable {
    /// The window of a stream if hello announces none.
    package static let defaultStream: UInt32 = 262_144
    /// The window of all streams of a connection together if hello announces none.
    package static let defaultConnection: UInt32 = 4_194_304

    /// The window of each stream, in the cost of frames.
    package var stream: UInt32
    /// The window of all streams together. The smaller room counts.
    package var connection: UInt32

    /// - Parameters:
    ///   - stream: The window of each stream; 0 for the default.
    ///   - connection: The window of all streams together; 0 for the default.
    package init(stream: UInt32 = 0, connection: UInt32 = 0) {
        self.stream = stream == 0 ? Self.defaultStream : stream
        self.connection = connection == 0 ? Self.defaultConnection : connection
    }

    /// The number in hello: 0 for the default.
    package var announcedStream: UInt32 { self.stream == Self.defaultStream ? 0 : self.stream }
    /// The number in hello: 0 for the default.
    package var announcedConnection: UInt32 { self.connection == Self.defaultConnection ? 0 : self.connection }
}

/// The terms on which a connection has streams, as hello agreed on them.
package struct StreamTerms: Hashable, Sendable {
    /// The number of streams that a client may have open if hello announces none.
    package static let defaultMaximumStreams: UInt32 = 100

    /// The amounts that the client is ready to receive.
    package var client: StreamWindows
    /// The amounts that the server is ready to receive.
    package var server: StreamWindows
    /// The number of streams that the client may have open at a time.
    package var maximumStreams: UInt32

    /// - Parameter maximumStreams: The number of streams that the client may have open at a time; 0 for the default.
    package init(
        client: StreamWindows = StreamWindows(),
        server: StreamWindows = StreamWindows(),
        maximumStreams: UInt32 = 0
    ) {
        self.client = client
        self.server = server
        self.maximumStreams = maximumStreams == 0 ? Self.defaultMaximumStreams : maximumStreams
    }

    /// The number in hello: 0 for the default.
    var announcedMaximumStreams: UInt32 {
        self.maximumStreams == Self.defaultMaximumStreams ? 0 : self.maximumStreams
    }
}
