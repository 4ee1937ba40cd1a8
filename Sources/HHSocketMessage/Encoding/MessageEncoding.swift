// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Encodes messages that are not short into memory whose length is an estimate: that of the last message of the type.
/// If it does not suffice, the message is encoded once more. ``ProtobufMessage/encodeIfShort(isCanonical:_:)`` encodes
/// short ones.
///
/// A message is passed as a closure that encodes it.
@usableFromInline
struct MessageEncoding {
    typealias Encode = (inout MessageEncoder) -> Void

    private let descriptor: MessageDescriptor
    private let isCanonical: Bool

    init(_ descriptor: MessageDescriptor, isCanonical: Bool = false) {
        self.descriptor = descriptor
        self.isCanonical = isCanonical
    }

    /// The maximum length of a message that is encoded on the stack, in bytes: Swift puts longer memory on the heap.
    @inlinable
    static var shortLength: Int { 1 << 10 }

    func bytes(_ encode: Encode) throws(MessageError) -> [UInt8] {
        var capacity = self.descriptor.expectedLength
        while true {
            var attempt = Attempt()
            let bytes = [UInt8](unsafeUninitializedCapacity: capacity) { memory, count in
                attempt = self.attempt(UnsafeMutableRawBufferPointer(memory), encode)
                guard let start = memory.baseAddress, attempt.length <= capacity else { return }
                // It is at the end of the memory.
                let source = start + (capacity - attempt.length)
                if source != start {
                    UnsafeMutableRawPointer(start).copyMemory(from: source, byteCount: attempt.length)
                }
                count = attempt.length
            }
            try self.check(attempt)
            self.descriptor.expectedLength = attempt.length
            if attempt.length <= capacity { return bytes }
            capacity = attempt.length
        }
    }

    func buffer(_ encode: Encode) throws(MessageError) -> ByteBuffer {
        var capacity = self.descriptor.expectedLength
        while true {
            var buffer = ByteBufferAllocator().buffer(capacity: capacity)
            capacity = buffer.writableBytes
            let attempt = buffer.withUnsafeMutableWritableBytes { memory in self.attempt(memory, encode) }
            try self.check(attempt)
            self.descriptor.expectedLength = attempt.length
            if attempt.length <= capacity {
                // It is at the end of the memory.
                buffer.moveWriterIndex(forwardBy: capacity)
                buffer.moveReaderIndex(forwardBy: capacity - attempt.length)
                return buffer
            }
            capacity = attempt.length
        }
    }

    /// The result of encoding into memory that may be too short.
    private struct Attempt {
        /// The length of the encoded message, in bytes. If there is room for it, it is at the end of the memory.
        var length = 0
        var failure: CodingFailure?
    }

    private func attempt(_ memory: UnsafeMutableRawBufferPointer, _ encode: Encode) -> Attempt {
        var encoder = MessageEncoder(memory, isCanonical: self.isCanonical)
        encode(&encoder)
        return Attempt(length: encoder.count, failure: encoder.failure)
    }

    /// Throws ``MessageError`` if the message cannot be encoded.
    private func check(_ attempt: Attempt) throws(MessageError) {
        if let failure = attempt.failure { throw failure.error }
        if attempt.length > MessageLimits.length { throw MessageError(.tooLarge, in: self.descriptor.name) }
    }
}

extension MessageDescriptor {
    /// Whether messages of this type are expected to be short, and are encoded on the stack first.
    @usableFromInline
    var expectsShortMessages: Bool { self.expectedLength <= MessageEncoding.shortLength }
}
