// SPDX-License-Identifier: Apache-2.0
/// Which sides of a stream send items.
public struct StreamKind: Hashable, Sendable {
    /// Whether the client sends items; otherwise the opening has its one message.
    package let clientStreams: Bool
    /// Whether the server sends items; otherwise its final answer has its one message.
    package let serverStreams: Bool

    package init(clientStreams: Bool, serverStreams: Bool) {
        self.clientStreams = clientStreams
        self.serverStreams = serverStreams
    }

    /// The client sends items, and the server one message at the end.
    public static let clientStreaming = StreamKind(clientStreams: true, serverStreams: false)
    /// The client sends one message at the beginning, and the server items.
    public static let serverStreaming = StreamKind(clientStreams: false, serverStreams: true)
    /// Both send items, each whenever it likes.
    public static let bidirectional = StreamKind(clientStreams: true, serverStreams: true)
}
