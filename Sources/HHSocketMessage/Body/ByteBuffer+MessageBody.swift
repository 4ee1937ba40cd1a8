// SPDX-License-Identifier: Apache-2.0
public import NIOCore

extension ByteBuffer {
    /// Creates a payload from the bytes of a message.
    ///
    /// - Throws: The error of the message's encoder: ``MessageError`` for generated messages.
    @inlinable
    public init(message: some MessageBody) throws {
        self = try message.messageBuffer()
    }

    /// Creates a payload from the canonical bytes of a message, which are equal for equal messages; see
    /// ``MessageBody/withCanonicalMessageBytes(_:)`` for the exceptions.
    ///
    /// - Throws: The error of the message's encoder: ``MessageError`` for generated messages.
    @inlinable
    package init(canonicalMessage message: some MessageBody) throws {
        self = try message.withCanonicalMessageBytes { bytes in ByteBuffer(bytes: bytes) }
    }

    /// Decodes the whole payload as a message.
    ///
    /// - Parameters:
    ///   - type: The type of the message.
    ///   - limits: The bounds of nesting and of memory.
    /// - Throws: The error of the message's decoder: ``MessageError`` for generated messages.
    @inlinable
    public func message<Message: MessageBody>(
        as type: Message.Type = Message.self,
        limits: MessageLimits = .standard
    ) throws -> Message {
        try self.withUnsafeReadableBytes { bytes in try Message(messageBytes: bytes, limits: limits) }
    }

    /// Creates a buffer with these bytes, in fewer steps than the initialiser for any sequence takes.
    @inlinable
    init(copying bytes: UnsafeRawBufferPointer) {
        guard !bytes.isEmpty else {
            self.init()
            return
        }
        self = ByteBufferAllocator().buffer(capacity: bytes.count)
        self.withUnsafeMutableWritableBytes { $0.copyMemory(from: bytes) }
        self.moveWriterIndex(forwardBy: bytes.count)
    }
}
