// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage

#if canImport(HHSocketProtobufC)
import HHSocketProtobufC
#endif

/// Encodes and decodes the messages of a schema: by libprotobuf-c on Linux and macOS, in Swift elsewhere.
struct MessageCodec: Sendable {
    #if canImport(HHSocketProtobufC)
    private let codec: DynamicCodec

    init(_ descriptor: MessageDescriptor) {
        self.codec = DynamicCodec(descriptor)
    }

    func message(_ bytes: UnsafeRawBufferPointer) throws(MessageError) -> DynamicMessage {
        try self.codec.message(bytes)
    }

    func bytes(_ message: DynamicMessage) throws(MessageError) -> [UInt8] { try self.codec.bytes(message) }
    #else
    private let descriptor: MessageDescriptor

    init(_ descriptor: MessageDescriptor) {
        self.descriptor = descriptor
    }

    func message(_ bytes: UnsafeRawBufferPointer) throws(MessageError) -> DynamicMessage {
        try DynamicMessage(self.descriptor, serializedBytes: bytes)
    }

    func bytes(_ message: DynamicMessage) throws(MessageError) -> [UInt8] { try message.serializedBytes() }
    #endif
}
