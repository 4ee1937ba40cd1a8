// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage

// Encodes and decodes the messages of a schema: by libprotobuf-c on Linux and macOS, in Swift elsewhere.
#if canImport(HHSocketProtobufC)
import HHSocketProtobufC

typealias MessageCodec = DynamicCodec
#else
struct MessageCodec: Sendable {
    private let descriptor: MessageDescriptor

    init(_ descriptor: MessageDescriptor) {
        self.descriptor = descriptor
    }

    func message(_ bytes: UnsafeRawBufferPointer) throws(MessageError) -> DynamicMessage {
        try DynamicMessage(self.descriptor, serializedBytes: bytes)
    }

    func bytes(_ message: DynamicMessage) throws(MessageError) -> [UInt8] { try message.serializedBytes() }
}
#endif
