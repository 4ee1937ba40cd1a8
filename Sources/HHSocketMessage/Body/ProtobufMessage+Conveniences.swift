// SPDX-License-Identifier: Apache-2.0
public import HHSocketFoundation
public import NIOCore

extension ProtobufMessage {
    /// Creates a message and sets its fields in a closure.
    ///
    /// ```swift
    /// let note = Chat_Note.with {
    ///     $0.number = 7
    ///     $0.message.text = "hello"
    /// }
    /// ```
    ///
    /// - Throws: The error of the closure.
    @inlinable
    public static func with<Failure>(_ populate: (inout Self) throws(Failure) -> Void) throws(Failure) -> Self {
        var message = Self()
        try populate(&message)
        return message
    }

    /// Encodes the message, as ``serializedBytes()`` does.
    ///
    /// - Throws: ``MessageError`` if a required field is missing, the message is nested more than 100 deep, or its
    ///   encoding would have 2 GiB or more.
    @inlinable
    public func serializedData() throws(MessageError) -> Data { Data(try self.serializedBytes()) }

    /// Decodes a message from the readable bytes of a buffer.
    ///
    /// - Parameters:
    ///   - buffer: The whole message; less than 2 GiB.
    ///   - limits: The bounds of nesting and of memory.
    /// - Throws: ``MessageError`` if the bytes are not such a message, or it exceeds the limits.
    @inlinable
    public init(serializedBytes buffer: ByteBuffer, limits: MessageLimits = .standard) throws(MessageError) {
        self.init()
        let failure = buffer.withUnsafeReadableBytes { bytes in self.decode(bytes, limits) }
        if let failure { throw failure.error }
    }
}
