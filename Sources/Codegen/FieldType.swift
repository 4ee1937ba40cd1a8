// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// The Swift type of one value of a field. For the keys and values of a map, use the fields of its entry.
struct FieldType {
    private let field: FieldDescriptor
    private let names: Names

    init(_ field: FieldDescriptor, _ names: Names) {
        self.field = field
        self.names = names
    }

    /// The Swift type.
    var name: String {
        switch self.field.type {
        case .int32, .sint32, .sfixed32: "Int32"
        case .int64, .sint64, .sfixed64: "Int64"
        case .uint32, .fixed32: "UInt32"
        case .uint64, .fixed64: "UInt64"
        case .float: "Float"
        case .double: "Double"
        case .bool: "Bool"
        case .string: "String"
        case .bytes: "Data"
        case .enum: self.names.namer.fullName(enum: self.field.enumType)
        case .message, .group: self.names.namer.fullName(message: self.field.messageType)
        }
    }

    /// The kind in a descriptor.
    var kind: String { self.forms.kind }

    /// The type that encodes a value on the wire; for fields that are not messages.
    var coding: String { "\(Names.runtime).\(self.forms.coding).self" }

    private var forms: (kind: String, coding: String) {
        switch self.field.type {
        case .int32: ("int32", "WireInt32")
        case .sint32: ("sint32", "WireSInt32")
        case .sfixed32: ("sfixed32", "WireSFixed32")
        case .int64: ("int64", "WireInt64")
        case .sint64: ("sint64", "WireSInt64")
        case .sfixed64: ("sfixed64", "WireSFixed64")
        case .uint32: ("uint32", "WireUInt32")
        case .fixed32: ("fixed32", "WireFixed32")
        case .uint64: ("uint64", "WireUInt64")
        case .fixed64: ("fixed64", "WireFixed64")
        case .float: ("float", "WireFloat")
        case .double: ("double", "WireDouble")
        case .bool: ("bool", "WireBool")
        case .string: ("string", "WireString")
        case .bytes: ("bytes", "WireBytes")
        case .enum: ("enum", "WireEnum<\(self.name)>")
        case .message: ("message", "messages have none")
        case .group: ("group", "messages have none")
        }
    }

    /// The number and wire type of a field in front of a single value.
    func tag(_ number: Int32) -> UInt32 {
        let wireType: UInt32 =
            switch self.field.type {
            case .int32, .sint32, .int64, .sint64, .uint32, .uint64, .bool, .enum: 0
            case .sfixed64, .fixed64, .double: 1
            case .string, .bytes, .message: 2
            case .group: 3
            case .sfixed32, .fixed32, .float: 5
            }
        return UInt32(bitPattern: number) << 3 | wireType
    }

    /// Whether the values are messages, with a length or as groups.
    var isMessage: Bool { self.field.type == .message || self.isGroup }
    var isGroup: Bool { self.field.type == .group }
    var isEnum: Bool { self.field.type == .enum }
    var isPackable: Bool { !self.isMessage && self.tag(0) != 2 }

    var defaultValue: String {
        let text = self.field.defaultValue
        return switch self.field.type {
        case .float, .double: text.map { Literals.floatingPoint($0, self.name) } ?? "0"
        case .bool: text ?? "false"
        case .string: Literals.string(text ?? "")
        case .bytes: Literals.bytes(text ?? "")
        case .enum: self.defaultCase
        case .message, .group: "\(self.name)()"
        default: text ?? "0"
        }
    }

    /// The default case, qualified if it could otherwise be mistaken for a case of `Optional`.
    private var defaultCase: String {
        let values = self.field.enumType.values
        guard let value = values.first(where: { $0.name == self.field.defaultValue }) ?? values.first else { return "" }
        let name = Names.used(self.names.enumCase(value))
        return Names.isOptionals(name) ? "\(self.name).\(name)" : ".\(name)"
    }
}
