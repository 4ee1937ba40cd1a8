#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// One value of a field whose kind is known only when the program runs.
package enum DynamicValue: Sendable {
    /// Of `int32`, `sint32`, `sfixed32` and enumerations.
    case int32(Int32)
    /// Of `int64`, `sint64` and `sfixed64`.
    case int64(Int64)
    /// Of `uint32` and `fixed32`.
    case uint32(UInt32)
    /// Of `uint64` and `fixed64`.
    case uint64(UInt64)
    case float(Float)
    case double(Double)
    case bool(Bool)
    case string(String)
    case bytes(Data)
    case message(DynamicMessage)

    /// What a field holds that was not sent.
    ///
    /// - Parameter message: Of what kind the message is, where it is one.
    package static func zero(of kind: FieldKind, message: @autoclosure () -> MessageDescriptor) -> Self {
        switch kind {
        case .int32, .sint32, .sfixed32, .enum: .int32(0)
        case .int64, .sint64, .sfixed64: .int64(0)
        case .uint32, .fixed32: .uint32(0)
        case .uint64, .fixed64: .uint64(0)
        case .float: .float(0)
        case .double: .double(0)
        case .bool: .bool(false)
        case .string: .string("")
        case .bytes: .bytes(Data())
        case .message: .message(DynamicMessage(message()))
        }
    }

    /// Whether this is what a field holds that was not sent.
    var isZero: Bool {
        switch self {
        case .int32(let value): value.isProtobufZero
        case .int64(let value): value.isProtobufZero
        case .uint32(let value): value.isProtobufZero
        case .uint64(let value): value.isProtobufZero
        case .float(let value): value.isProtobufZero
        case .double(let value): value.isProtobufZero
        case .bool(let value): value.isProtobufZero
        case .string(let value): value.isProtobufZero
        case .bytes(let value): value.isProtobufZero
        case .message: false
        }
    }

    func fits(_ field: FieldDescriptor) -> Bool {
        switch self {
        case .int32: [.int32, .sint32, .sfixed32, .enum].contains(field.kind)
        case .int64: [.int64, .sint64, .sfixed64].contains(field.kind)
        case .uint32: [.uint32, .fixed32].contains(field.kind)
        case .uint64: [.uint64, .fixed64].contains(field.kind)
        case .float: field.kind == .float
        case .double: field.kind == .double
        case .bool: field.kind == .bool
        case .string: field.kind == .string
        case .bytes: field.kind == .bytes
        case .message(let message): field.message?() === message.descriptor
        }
    }
}

extension DynamicValue {
    /// Takes a value out of a record.
    init(_ memory: UnsafeRawPointer, of field: FieldDescriptor) {
        switch field.kind {
        case .int32, .sint32, .sfixed32, .enum: self = .int32(Int32(protobufField: memory))
        case .int64, .sint64, .sfixed64: self = .int64(Int64(protobufField: memory))
        case .uint32, .fixed32: self = .uint32(UInt32(protobufField: memory))
        case .uint64, .fixed64: self = .uint64(UInt64(protobufField: memory))
        case .float: self = .float(Float(protobufField: memory))
        case .double: self = .double(Double(protobufField: memory))
        case .bool: self = .bool(Bool(protobufField: memory))
        case .string: self = .string(String(protobufField: memory))
        case .bytes: self = .bytes(Data(protobufField: memory))
        case .message:
            // Fields of messages, and no others, say of which; and who calls has seen that there is one.
            let descriptor = field.message.unsafelyUnwrapped()
            let record = memory.load(as: UnsafeRawPointer.self)
            self = .message(DynamicMessage(record: RecordReader(record, descriptor.plan), descriptor))
        }
    }

    /// Puts the value into a record.
    ///
    /// - Parameter field: The field's index in `record`.
    func store(_ slot: RecordSlot, of field: Int, in record: RecordWriter) throws(MessageError) {
        switch self {
        case .int32(let value): value.storeProtobufField(slot)
        case .int64(let value): value.storeProtobufField(slot)
        case .uint32(let value): value.storeProtobufField(slot)
        case .uint64(let value): value.storeProtobufField(slot)
        case .float(let value): value.storeProtobufField(slot)
        case .double(let value): value.storeProtobufField(slot)
        case .bool(let value): value.storeProtobufField(slot)
        case .string(let value): value.storeProtobufField(slot)
        case .bytes(let value): value.storeProtobufField(slot)
        case .message(let message):
            let inner = try record.inner(field)
            slot.memory.storeBytes(of: inner.memory, as: UnsafeMutableRawPointer.self)
            try message.write(to: inner)
        }
    }
}
