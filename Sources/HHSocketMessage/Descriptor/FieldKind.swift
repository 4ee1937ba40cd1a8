/// What a field of a message holds: on the wire, and in a ``Record``.
///
/// The raw values are those of protobuf-c's `ProtobufCType`.
public enum FieldKind: UInt8, Sendable, Hashable, CaseIterable {
    case int32, sint32, sfixed32, int64, sint64, sfixed64, uint32, fixed32, uint64, fixed64
    case float, double
    case bool
    case `enum`
    case string, bytes
    case message

    /// How values of this kind stand on the wire, each by itself.
    var wireType: WireType {
        switch self {
        case .int32, .sint32, .int64, .sint64, .uint32, .uint64, .bool, .enum: .varint
        case .sfixed32, .fixed32, .float: .fixed32
        case .sfixed64, .fixed64, .double: .fixed64
        case .string, .bytes, .message: .lengthDelimited
        }
    }

    /// Whether several values may stand together behind one length.
    var isPackable: Bool { self.wireType != .lengthDelimited }

    /// The length in bytes of a value in a record: a pointer for a message, a length and a pointer for strings and
    /// bytes.
    var size: Int {
        switch self {
        case .int32, .sint32, .sfixed32, .uint32, .fixed32, .float, .bool, .enum: 4
        case .int64, .sint64, .sfixed64, .uint64, .fixed64, .double: 8
        case .message: MemoryLayout<UnsafeRawPointer>.size
        case .string, .bytes: 2 * MemoryLayout<UnsafeRawPointer>.size
        }
    }
}

/// How a field's value is delimited on the wire.
enum WireType: UInt8, Sendable {
    case varint = 0
    case fixed64 = 1
    case lengthDelimited = 2
    /// A group, which was given up before there was a version 3 of protobuf.
    case startGroup = 3
    case endGroup = 4
    case fixed32 = 5
}
