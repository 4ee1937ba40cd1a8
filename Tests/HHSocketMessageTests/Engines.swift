// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage

#if canImport(HHSocketProtobufC)
import HHSocketProtobufC
#endif

/// The ways to read and write messages whose type is known only at run time: in Swift on all platforms, by
/// libprotobuf-c on Linux and macOS.
enum Engine: String, CaseIterable {
    case swift
    #if canImport(HHSocketProtobufC)
    case protobufC
    #endif

    func message(
        _ bytes: [UInt8],
        _ descriptor: MessageDescriptor,
        limits: MessageLimits = .standard
    ) throws(MessageError) -> DynamicMessage {
        let result: Result<DynamicMessage, MessageError> = bytes.withUnsafeBytes { bytes in
            do throws(MessageError) {
                switch self {
                case .swift:
                    return .success(try DynamicMessage(descriptor, serializedBytes: bytes, limits: limits))
                #if canImport(HHSocketProtobufC)
                case .protobufC: return .success(try DynamicCodec(descriptor).message(bytes, limits: limits))
                #endif
                }
            } catch {
                return .failure(error)
            }
        }
        return try result.get()
    }

    /// Reads a message and writes it again, with its unknown fields.
    func rewritten(_ bytes: [UInt8], _ descriptor: MessageDescriptor) throws(MessageError) -> [UInt8] {
        let message = try self.message(bytes, descriptor)
        switch self {
        case .swift: return try message.serializedBytes()
        #if canImport(HHSocketProtobufC)
        case .protobufC: return try DynamicCodec(descriptor).bytes(message)
        #endif
        }
    }
}
