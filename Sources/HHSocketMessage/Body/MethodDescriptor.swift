/// A method of a service, as a `.proto` declares it: what is sent, what comes back, and the type of the frames.
public struct MethodDescriptor<Request: MessageBody, Response: MessageBody>: Sendable, Hashable {
    /// How many messages go each way.
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
