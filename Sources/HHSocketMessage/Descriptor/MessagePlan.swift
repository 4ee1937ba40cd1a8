/// A descriptor as the engines want it: plain memory, without references to count.
@frozen
@usableFromInline
struct MessagePlan {
    /// By their numbers, upwards.
    @usableFromInline let fields: UnsafeMutablePointer<FieldPlan>
    let count: Int
    /// The first fields, as many as this, are numbered from 1 without a gap, so that a number is an index.
    let dense: UInt32
    @usableFromInline let recordLength: Int
    /// Whether it is an entry of a map to what is no message, so that nothing can lie deeper.
    let isEntryOfValues: Bool
    /// Whether it has required fields, or a message in it does. Set when the descriptors are linked.
    var mayLackRequired: Bool
    /// protobuf-c's `ProtobufCMessageDescriptor`, where there is protobuf-c.
    @usableFromInline var protobufC: UnsafeMutableRawPointer?
    /// For errors.
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

    /// Whether a closed enumeration, that of this field, knows the number.
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
        /// With a flag.
        case singular
        case required
        case repeated
        case packed
        case oneof
    }

    /// Where the value lies in a record, in bytes from its beginning.
    @usableFromInline let value: Int32
    /// Where its flag, its count, or the number of the oneof's field lies.
    @usableFromInline let quantifier: Int32
    @usableFromInline let number: UInt32
    let kind: FieldKind
    let shape: Shape
    /// Its index among the fields that hold one message, up to 63; 255 for others.
    let ordinal: UInt8
    /// Whether the values are the entries of a map.
    let isMap: Bool
    /// Whether the values are those of a closed enumeration, which may not know what comes.
    let isClosed: Bool
    /// Of the messages in it. Set when the descriptors are linked.
    @usableFromInline var message: UnsafePointer<MessagePlan>?

    var isRepeated: Bool { self.shape == .repeated || self.shape == .packed }
}
