/// A message whose type is known only at run time, as in a tool that has read a `.proto`.
///
/// It uses the same records and engines as generated messages. Unknown fields are not kept.
package struct DynamicMessage: Sendable {
    package enum Field: Sendable {
        case value(DynamicValue)
        /// The values of a repeated field; the entries of a map are messages with a key and a value.
        case values([DynamicValue])
    }

    package let descriptor: MessageDescriptor
    /// The fields that have a value, by their index among the descriptor's fields.
    private var fields: [Int: Field] = [:]

    package init(_ descriptor: MessageDescriptor) {
        self.descriptor = descriptor
    }

    /// The content of a field, given by its index among the descriptor's fields; nil if it has no value.
    package subscript(field: Int) -> Field? { self.fields[field] }

    /// Sets the value of a singular field. A field of a oneof replaces the one set before.
    package mutating func set(_ field: Int, _ value: DynamicValue) {
        let descriptor = self.descriptor.fields[field]
        precondition(!descriptor.isRepeated && value.fits(descriptor), "\(descriptor.name) cannot hold \(value)")
        if case .oneof = descriptor.presence {
            for index in self.fields.keys where self.descriptor.fields[index].presence == descriptor.presence {
                self.fields[index] = nil
            }
        }
        self.fields[field] = .value(value)
    }

    /// Sets the values of a repeated field.
    package mutating func set(_ field: Int, _ values: [DynamicValue]) {
        let descriptor = self.descriptor.fields[field]
        precondition(
            descriptor.isRepeated && values.allSatisfy { $0.fits(descriptor) },
            "\(descriptor.name) cannot hold these values"
        )
        self.fields[field] = values.isEmpty ? nil : .values(values)
    }
}

extension DynamicMessage {
    /// Decodes a message.
    ///
    /// - Throws: ``MessageError`` if the bytes are not such a message.
    package init(_ descriptor: MessageDescriptor, serializedBytes bytes: UnsafeRawBufferPointer) throws(MessageError) {
        self = try MessageCodec.read(bytes, descriptor.plan) { Self(record: $0, descriptor) }.get()
    }

    /// Encodes the message.
    ///
    /// - Throws: ``MessageError`` if a required field is missing, the message is nested too deeply, or it is too large.
    package func serializedBytes() throws(MessageError) -> [UInt8] {
        try MessageCodec.write(
            self.descriptor.plan,
            { record throws(MessageError) in try self.write(to: record) },
            { Array($0) }
        ).get()
    }

    init(record: RecordReader, _ descriptor: MessageDescriptor) {
        self.descriptor = descriptor
        for (index, field) in descriptor.fields.enumerated() {
            if field.isRepeated {
                let (start, count) = record.values(index)
                guard let start, count > 0 else { continue }
                let values = (0..<count).map { DynamicValue(start + $0 * field.kind.size, of: field) }
                self.fields[index] = .values(values)
            } else if Self.holds(record, index, field) {
                let value = DynamicValue(record.slot(index), of: field)
                if field.presence != .implicit || !value.isZero { self.fields[index] = .value(value) }
            }
        }
    }

    private static func holds(_ record: RecordReader, _ index: Int, _ field: FieldDescriptor) -> Bool {
        switch field.presence {
        case .oneof: record.oneof(index) == field.number
        // Not every engine sets the flag of a message or of a required field.
        case _ where field.kind == .message: record.slot(index).load(as: UnsafeRawPointer?.self) != nil
        case .required: true
        default: record.flag(index) != 0
        }
    }

    func write(to record: RecordWriter) throws(MessageError) {
        for (index, field) in self.descriptor.fields.enumerated() {
            switch self.fields[index] {
            case .value(let value):
                if field.presence == .implicit, value.isZero { continue }
                let place = record.place(index)
                let slot = RecordSlot(record.memory + Int(place.pointee.value), record.arena)
                try value.store(slot, of: index, in: record)
                var quantifier: UInt32 = 1
                if case .oneof = field.presence { quantifier = field.number }
                record.memory.storeBytes(
                    of: quantifier,
                    toByteOffset: Int(place.pointee.quantifier),
                    as: UInt32.self
                )
            case .values(let values):
                let start = record.takeArray(index, count: values.count, size: field.kind.size)
                var next = start
                for value in values {
                    try value.store(RecordSlot(next, record.arena), of: index, in: record)
                    next += field.kind.size
                }
            case nil:
                if field.presence == .required { throw record.missing(index) }
            }
        }
    }
}

extension FieldDescriptor {
    fileprivate var isRepeated: Bool { self.presence == .repeated || self.presence == .packed }
}
