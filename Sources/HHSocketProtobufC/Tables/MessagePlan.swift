// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage

/// A descriptor in the form of libprotobuf-c: plain memory, with the offset of each field in a record.
struct MessagePlan {
    /// The fields, in ascending order of their numbers.
    let fields: UnsafeMutablePointer<FieldPlan>
    let count: Int
    let recordLength: Int
    /// Whether the message is an entry of a map whose values are not messages, so that nothing is nested in it.
    let isEntryOfValues: Bool
    /// The `ProtobufCMessageDescriptor`.
    let protobufC: UnsafeMutableRawPointer
    /// The descriptor, for the names in errors.
    unowned(unsafe) let descriptor: MessageDescriptor

    func index(of number: UInt32) -> Int? { self.descriptor.index(ofNumber: number) }

    func name(of field: Int) -> String { self.descriptor.fields[field].name }

    /// Whether the field's closed enumeration declares the number; true if the field has none.
    func knows(_ number: UInt32, field: Int) -> Bool {
        self.descriptor.fields[field].enumeration?.name(ofNumber: Int32(bitPattern: number)) != nil
    }
}

/// One field of a ``MessagePlan``.
struct FieldPlan {
    enum Shape: UInt8 {
        /// Optional or implicit, with a presence flag.
        case singular
        case required
        case repeated
        case packed
        case oneof
    }

    /// The offset of the value in a record, in bytes.
    let value: Int32
    /// The offset of the flag, the count, or the number of the field that the oneof holds.
    let quantifier: Int32
    let number: UInt32
    let kind: FieldKind
    let shape: Shape
    /// The index among the singular message fields, up to 63; 255 for other fields.
    let ordinal: UInt8
    /// Whether the values are of a closed enumeration, which may not declare a received number.
    let isClosed: Bool
    /// The plan of the field's messages. Set when the descriptors are linked.
    var message: UnsafePointer<MessagePlan>?

    var isRepeated: Bool { self.shape == .repeated || self.shape == .packed }
}

extension FieldPlan {
    /// - Parameter messages: The number of singular message fields before this one; updated for this one.
    init(_ field: FieldDescriptor, at position: RecordLayout.Position, messages: inout UInt8) {
        self.value = Int32(position.value)
        self.quantifier = Int32(position.quantifier)
        self.number = field.number
        self.kind = field.kind
        self.isClosed = field.enumeration?.isClosed == true
        switch field.presence {
        case .implicit, .explicit: self.shape = .singular
        case .required: self.shape = .required
        case .repeated: self.shape = .repeated
        case .packed: self.shape = .packed
        case .oneof: self.shape = .oneof
        }
        if field.kind == .message, self.shape != .repeated, messages < 64 {
            self.ordinal = messages
            messages += 1
        } else {
            self.ordinal = 255
        }
        self.message = nil
    }
}

extension FieldKind {
    /// The size of a value in a record, in bytes: that of a pointer for a message, of a length and a pointer for
    /// strings and bytes.
    var size: Int {
        switch self {
        case .int32, .sint32, .sfixed32, .uint32, .fixed32, .float, .bool, .enum: 4
        case .int64, .sint64, .sfixed64, .uint64, .fixed64, .double: 8
        case .message: MemoryLayout<UnsafeRawPointer>.size
        case .string, .bytes: 2 * MemoryLayout<UnsafeRawPointer>.size
        }
    }
}
