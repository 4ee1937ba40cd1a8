public import NIOCore

extension ByteBuffer {
    /// A payload: the bytes of a message.
    ///
    /// - Throws: What the message's writer throws: ``MessageError`` for generated ones.
    @inlinable
    public init(message: some MessageBody) throws {
        self = try message.withMessageBytes { bytes in ByteBuffer(bytes: bytes) }
    }

    /// A payload: the bytes of a message, the same for equal messages.
    ///
    /// - Throws: What the message's writer throws: ``MessageError`` for generated ones.
    @inlinable
    public init(canonicalMessage message: some MessageBody) throws {
        self = try message.withCanonicalMessageBytes { bytes in ByteBuffer(bytes: bytes) }
    }

    /// The whole payload as a message.
    ///
    /// - Throws: What the message's reader throws: ``MessageError`` for generated ones.
    @inlinable
    public func message<Message: MessageBody>(as type: Message.Type = Message.self) throws -> Message {
        try self.withUnsafeReadableBytes { bytes in try Message(messageBytes: bytes) }
    }
}
