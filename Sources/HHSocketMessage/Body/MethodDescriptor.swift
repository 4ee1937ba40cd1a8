/// A method of a service, as a `.proto` declares it: the types of its request, its response and its frames.
public struct MethodDescriptor<Request: MessageBody, Response: MessageBody>: Sendable, Hashable {
    /// The number of messages in each direction: one, or a stream.
    public enum Kind: Sendable, Hashable {
        case unary, serverStream, clientStream, bidirectionalStream
    }

    /// The full name, such as `chat.Chat/Send`.
    public let name: String
    /// The frames' type: `option (hhsocket.message_type) = 101;`.
    public let type: UInt32
    public let kind: Kind

    public init(_ name: String, type: UInt32, kind: Kind) {
        self.name = name
        self.type = type
        self.kind = kind
    }
}
