// SPDX-License-Identifier: Apache-2.0
import CProtobufC
public import HHSocketMessage
public import NIOCore

/// A message in the structure of a C library, which libprotobuf-c encodes and decodes, without a copy through Swift.
///
/// It is the body of a call like any other message:
/// ```swift
/// var report = Weather__Report()
/// weather__report__init(&report)
/// report.temperature = 21.5
/// let receipt = try await client.call(method, CMessage(packing: &report))
/// try receipt.withStructure { receipt in print(receipt.pointee.number) }
/// ```
public struct CMessage<Structure: ProtobufCStructure>: MessageBody {
    /// The decoded structure; nil if the message was encoded here.
    ///
    /// Not the payload of an enumeration beside `packed`: it would be stored with a tag in the pointer, and the leak
    /// sanitizer would take what a message holds for leaked.
    private let unpacked: UnpackedStructure<Structure>?
    /// The encoded message; empty if the message was decoded.
    private let packed: ByteBuffer

    /// Encodes a structure, which remains the caller's.
    ///
    /// - Throws: ``/HHSocketMessage/MessageError`` if a required field is missing, or the encoded message would have 2
    ///   GiB or more.
    public init(packing structure: UnsafePointer<Structure>) throws(MessageError) {
        self.packed = try Self.packed(structure)
        self.unpacked = nil
    }

    /// Decodes a message. Strings are UTF-8, but may contain a NUL, where they end for C.
    ///
    /// - Throws: ``/HHSocketMessage/MessageError`` if the bytes are not such a message, messages in it are nested
    ///   more than 100 deep, or it would take more memory than ``/HHSocketMessage/MessageLimits/standard`` allows.
    public init(messageBytes: UnsafeRawBufferPointer) throws {
        try self.init(messageBytes: messageBytes, limits: .standard)
    }

    /// Decodes a message within limits, otherwise as ``init(messageBytes:)``.
    public init(messageBytes: UnsafeRawBufferPointer, limits: MessageLimits) throws {
        self.unpacked = try UnpackedStructure(messageBytes, limits)
        self.packed = ByteBuffer()
    }

    public static var protoMessageName: String { String(cString: Structure.descriptor.pointee.name) }

    /// Calls `body` with the structure, which is valid until `body` returns, and must not be changed.
    ///
    /// - Throws: Any error of `body`. ``/HHSocketMessage/MessageError`` for a message that was packed here and cannot
    ///   be unpacked, such as one with a string that is not UTF-8.
    public func withStructure<Result>(_ body: (UnsafePointer<Structure>) throws -> Result) throws -> Result {
        if let unpacked = self.unpacked { return try unpacked.withPointer(body) }
        return try self.packed.withUnsafeReadableBytes { bytes in
            try UnpackedStructure<Structure>(bytes, .standard).withPointer(body)
        }
    }

    public func withMessageBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) throws -> Result {
        try self.messageBuffer().withUnsafeReadableBytes(body)
    }

    public func messageBuffer() throws -> ByteBuffer {
        try self.unpacked?.withPointer { try Self.packed($0) } ?? self.packed
    }

    private static func packed(_ structure: UnsafePointer<Structure>) throws(MessageError) -> ByteBuffer {
        let message = UnsafeRawPointer(structure).assumingMemoryBound(to: ProtobufCMessage.self)
        guard message.pointee.descriptor == Structure.descriptor, protobuf_c_message_check(message) != 0 else {
            throw MessageError(.refusedByLibrary, in: self.protoMessageName)
        }
        let length = protobuf_c_message_get_packed_size(message)
        guard length <= MessageLimits.length else { throw MessageError(.tooLarge, in: self.protoMessageName) }
        var buffer = ByteBufferAllocator().buffer(capacity: length)
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: length) { memory in
            memory.baseAddress.map { protobuf_c_message_pack(message, $0.assumingMemoryBound(to: UInt8.self)) } ?? 0
        }
        return buffer
    }
}
