// SPDX-License-Identifier: Apache-2.0
import CProtobufC

/// The C structure of a message, as `protoc-c` declares it, which begins with a `ProtobufCMessage`.
///
/// One function lets ``CMessage`` use a structure of a C library as a body:
/// ```swift
/// extension Weather__Report: ProtobufCStructure {
///     public static func initialize(_ report: UnsafeMutablePointer<Self>?) { weather__report__init(report) }
/// }
/// ```
public protocol ProtobufCStructure {
    /// Calls the function that `protoc-c` generates to initialise a structure, which stores the descriptor and the
    /// default values.
    static func initialize(_ structure: UnsafeMutablePointer<Self>?)
}

extension ProtobufCStructure {
    /// The descriptor that `protoc-c` generates.
    static var descriptor: UnsafePointer<ProtobufCMessageDescriptor> {
        withUnsafeTemporaryAllocation(of: Self.self, capacity: 1) { memory in
            Self.initialize(memory.baseAddress)
            let message = UnsafeRawPointer(memory.baseAddress)?.load(as: ProtobufCMessage.self)
            guard let descriptor = message?.descriptor,
                descriptor.pointee.magic == UInt32(PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC)
            else { preconditionFailure("\(Self.self).initialize does not call the function that protoc-c generates") }
            return descriptor
        }
    }
}
