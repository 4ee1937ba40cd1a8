#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// One value of a field whose kind is known only at run time.
package enum DynamicValue: Sendable {
    /// A value of kind `int32`, `sint32` or `sfixed32`, or of an enumeration.
    case int32(Int32)
    /// A value of kind `int64`, `sint64` or `sfixed64`.
    case int64(Int64)
    /// A value of kind `uint32` or `fixed32`.
    case uint32(UInt32)
    /// A value of kind `uint64` or `fixed64`.
    case uint64(UInt64)
    case float(Float)
    case double(Double)
    case bool(Bool)
    case string(String)
    case bytes(Data)
    case message(DynamicMessage)

    /// The value of a field that was not sent.
    ///
    /// - Parameter message: The descriptor of the message; evaluated only for the kind `message`.
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

    /// Whether this is the value of a field that was not sent.
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
    /// Creates a value from a record's memory.
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
            // Fields of messages, and no others, have a descriptor; callers have checked that there is a message.
            let descriptor = field.message.unsafelyUnwrapped()
            let record = memory.load(as: UnsafeRawPointer.self)
            self = .message(DynamicMessage(record: RecordReader(record, descriptor.plan), descriptor))
        }
    }

    /// Stores the value in a record.
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
