/// Encodes messages into memory whose length is a guess: a short one on the stack, a long one in as much as the last of
/// its type took, and if that is too little, once more.
@usableFromInline
enum MessageEncoding {
    /// The length of the memory on the stack, in bytes. Swift allocates what is longer on the heap.
    @usableFromInline static let stackLength = 1 << 10

    /// Encodes a message that is not expected to be long, and calls `body` with its bytes.
    ///
    /// - Returns: The result of `body`; nil if the message is longer, or expected to be, and if it has an error.
    @inlinable
    static func inStack<Message: ProtobufMessage, Value>(
        _ message: Message,
        isCanonical: Bool,
        error: inout MessageError?,
        _ body: (UnsafeRawBufferPointer) -> Value
    ) -> Value? {
        guard Message.messageDescriptor.expectedLength <= Self.stackLength else { return nil }
        return withUnsafeTemporaryAllocation(byteCount: Self.stackLength, alignment: 1) { memory in
            var encoder = MessageEncoder(memory, isCanonical: isCanonical)
            message.encode(to: &encoder)
            if encoder.missing > 0 {
                Message.messageDescriptor.expectedLength = encoder.count
                return nil
            }
            error = Self.error(of: message, encoder)
            return error == nil
                ? body(UnsafeRawBufferPointer(start: encoder.cursor, count: encoder.count)) : nil
        }
    }

    /// Encodes a message, twice if more memory is needed than was guessed.
    ///
    /// - Parameter body: Is called with the length of the memory to allocate, and a function that encodes into that
    ///   memory. It returns the bytes, which are at the end of the memory; none if they do not fit.
    static func inHeap<Message: ProtobufMessage, Value>(
        _ message: Message,
        isCanonical: Bool,
        _ body: (Int, (UnsafeMutableRawBufferPointer) -> UnsafeRawBufferPointer) -> Value
    ) throws(MessageError) -> Value {
        let descriptor = Message.messageDescriptor
        var capacity = descriptor.expectedLength
        while true {
            var (length, failure) = (0, MessageError?.none)
            let value = body(capacity) { memory in
                var encoder = MessageEncoder(memory, isCanonical: isCanonical)
                message.encode(to: &encoder)
                length = encoder.count
                failure = Self.error(of: message, encoder)
                return UnsafeRawBufferPointer(start: encoder.cursor, count: encoder.missing > 0 ? 0 : length)
            }
            if let failure { throw failure }
            descriptor.expectedLength = length
            if length <= capacity { return value }
            capacity = length
        }
    }

    @inlinable
    static func error<Message: ProtobufMessage>(
        of message: Message,
        _ encoder: borrowing MessageEncoder
    ) -> MessageError? {
        if encoder.tooDeep != nil || encoder.count > MessageLimits.length {
            return encoder.error(in: Message.messageDescriptor)
        }
        do throws(MessageError) {
            // Now that it is known not to be too deep.
            try message.checkRequired()
            return nil
        } catch {
            return error
        }
    }
}
