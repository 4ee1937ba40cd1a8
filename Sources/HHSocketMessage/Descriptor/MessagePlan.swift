/// A descriptor in the form that the engines use: plain memory, without reference counting.
@frozen
@usableFromInline
struct MessagePlan {
    /// The fields, in ascending order of their numbers.
    @usableFromInline let fields: UnsafeMutablePointer<FieldPlan>
    let count: Int
    /// The number of leading fields that are numbered from 1 without a gap, so that the number gives the index.
    let dense: UInt32
    @usableFromInline let recordLength: Int
    /// Whether the message is an entry of a map whose values are not messages, so that nothing is nested in it.
    let isEntryOfValues: Bool
    /// Whether the message, or one nested in it, has required fields. Set when the descriptors are linked.
    var mayLackRequired: Bool
    /// The `ProtobufCMessageDescriptor`; nil without protobuf-c.
    @usableFromInline var protobufC: UnsafeMutableRawPointer?
    /// The descriptor, for the names in errors.
    unowned(unsafe) let descriptor: MessageDescriptor

    @inline(__always)
    func index(of number: UInt32) -> Int? {
        if number &- 1 < self.dense { return Int(number) - 1 }
        return self.searchedIndex(of: number)
    }

    private func searchedIndex(of number: UInt32) -> Int? {
        var low = Int(self.dense)
        var high = self.count
        while low < high {
            let middle = (low + high) / 2
            if self.fields[middle].number < number { low = middle + 1 } else { high = middle }
        }
        return low < self.count && self.fields[low].number == number ? low : nil
    }

    func name(of field: Int) -> String { self.descriptor.fields[field].name }

    /// Whether the field's closed enumeration declares the number; true if the field has none.
    func knows(_ number: UInt32, field: Int) -> Bool {
        self.descriptor.fields[field].knows?(Int32(bitPattern: number)) ?? true
    }
}

/// One field of a ``MessagePlan``.
@frozen
@usableFromInline
struct FieldPlan {
    @usableFromInline
    enum Shape: UInt8 {
        /// Optional or implicit, with a presence flag.
        case singular
        case required
        case repeated
        case packed
        case oneof
    }

    /// The offset of the value in a record, in bytes.
    @usableFromInline let value: Int32
    /// The offset of the flag, the count, or the number of the field that the oneof holds.
    @usableFromInline let quantifier: Int32
    @usableFromInline let number: UInt32
    let kind: FieldKind
    let shape: Shape
    /// The index among the singular message fields, up to 63; 255 for other fields.
    let ordinal: UInt8
    /// Whether the values are the entries of a map.
    let isMap: Bool
    /// Whether the values are of a closed enumeration, which may not declare a received number.
    let isClosed: Bool
    /// The plan of the field's messages. Set when the descriptors are linked.
    @usableFromInline var message: UnsafePointer<MessagePlan>?

    var isRepeated: Bool { self.shape == .repeated || self.shape == .packed }
}
