// SPDX-License-Identifier: Apache-2.0
/// The type of a field, which determines its encoding on the wire.
///
/// The raw values are those of protobuf-c's `ProtobufCType`.
public enum FieldKind: UInt8, Sendable, Hashable, CaseIterable {
    case int32, sint32, sfixed32, int64, sint64, sfixed64, uint32, fixed32, uint64, fixed64
    case float, double
    case bool
    case `enum`
    case string, bytes
    case message

    /// The wire type of a single value of this kind.
    package var wireType: WireType {
        switch self {
        case .int32, .sint32, .int64, .sint64, .uint32, .uint64, .bool, .enum: .varint
        case .sfixed32, .fixed32, .float: .fixed32
        case .sfixed64, .fixed64, .double: .fixed64
        case .string, .bytes, .message: .lengthDelimited
        }
    }

    /// Whether several values may be encoded together with one length.
    package var isPackable: Bool { self.wireType != .lengthDelimited }
}

/// The encoding of a field's value on the wire, which determines where it ends.
package enum WireType: UInt8, Sendable {
    case varint = 0
    case fixed64 = 1
    case lengthDelimited = 2
    /// The start of a group, a feature that protobuf deprecated before proto3.
    case startGroup = 3
    case endGroup = 4
    case fixed32 = 5
}
