// SPDX-License-Identifier: Apache-2.0
package import HHSocketFoundation

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
    package static func zero(of field: FieldDescriptor) -> Self {
        switch field.kind {
        case .int32, .sint32, .sfixed32: .int32(0)
        // The first value that is declared, which is 0 for those of proto3.
        case .enum: .int32(field.enumeration?.values.first?.number ?? 0)
        case .int64, .sint64, .sfixed64: .int64(0)
        case .uint32, .fixed32: .uint32(0)
        case .uint64, .fixed64: .uint64(0)
        case .float: .float(0)
        case .double: .double(0)
        case .bool: .bool(false)
        case .string: .string("")
        case .bytes: .bytes(Data())
        case .message: .message(DynamicMessage(field.message ?? MessageDescriptor("", [])))
        }
    }

    /// Whether this is the value of a field that was not sent.
    package var isZero: Bool {
        switch self {
        case .int32(let value): value == 0
        case .int64(let value): value == 0
        case .uint32(let value): value == 0
        case .uint64(let value): value == 0
        // -0 is sent, as by other implementations.
        case .float(let value): value.bitPattern == 0
        case .double(let value): value.bitPattern == 0
        case .bool(let value): !value
        case .string(let value): value.isEmpty
        case .bytes(let value): value.isEmpty
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
        case .message(let message): field.message === message.descriptor
        }
    }
}
