/// Reads the values of a message from its record. A field is given by its index among the message's fields, sorted by
/// number.
///
/// Used only by generated code. It is valid only until the initialiser that receives it returns.
@frozen
@_documentation(visibility: internal)
public struct RecordReader {
    @usableFromInline let memory: UnsafeRawPointer
    @usableFromInline let plan: UnsafePointer<MessagePlan>

    @inlinable
    init(_ memory: UnsafeRawPointer, _ plan: UnsafePointer<MessagePlan>) {
        self.memory = memory
        self.plan = plan
    }

    @inlinable
    @inline(__always)
    func place(_ field: Int) -> UnsafePointer<FieldPlan> { UnsafePointer(self.plan.pointee.fields + field) }

    @inlinable
    @inline(__always)
    func flag(_ field: Int) -> UInt32 {
        self.memory.load(fromByteOffset: Int(self.place(field).pointee.quantifier), as: UInt32.self)
    }

    @inlinable
    @inline(__always)
    func slot(_ field: Int) -> UnsafeRawPointer { self.memory + Int(self.place(field).pointee.value) }

    /// The value of a field; zero if it has none.
    @inlinable
    public func value<Value: FieldValue>(_ field: Int, as type: Value.Type = Value.self) -> Value {
        Value(protobufField: self.slot(field))
    }

    /// The value of an optional field; nil if it has none.
    @inlinable
    public func optional<Value: FieldValue>(_ field: Int, as type: Value.Type = Value.self) -> Value? {
        self.flag(field) != 0 ? Value(protobufField: self.slot(field)) : nil
    }

    /// The value of a required field.
    @inlinable
    public func required<Value: FieldValue>(_ field: Int, as type: Value.Type = Value.self) -> Value? {
        Value(protobufField: self.slot(field))
    }

    /// The number of the field that a oneof holds, or 0.
    ///
    /// - Parameter field: The index of any field of the oneof.
    @inlinable
    public func oneof(_ field: Int) -> UInt32 { self.flag(field) }

    /// The values of a repeated field.
    @inlinable
    public func array<Value: FieldValue>(_ field: Int, as type: Value.Type = Value.self) -> [Value] {
        let (start, count) = self.values(field)
        guard count > 0, let start else { return [] }
        var values: [Value] = []
        values.reserveCapacity(count)
        for index in 0..<count {
            values.append(Value(protobufField: start + index * Value.protobufFieldSize))
        }
        return values
    }

    /// The message in a field; nil if it has none.
    @inlinable
    public func message<Message: ProtobufMessage>(_ field: Int, as type: Message.Type = Message.self) -> Message? {
        guard let record = self.slot(field).load(as: UnsafeRawPointer?.self) else { return nil }
        return Message(record: self.reader(field, record))
    }

    /// The boxed message in a field; nil if it has none.
    @inlinable
    public func boxed<Message: ProtobufMessage>(_ field: Int, as type: Message.Type = Message.self) -> Boxed<Message>? {
        self.message(field).map { Boxed($0) }
    }

    /// The messages of a repeated field.
    @inlinable
    public func messages<Message: ProtobufMessage>(_ field: Int, as type: Message.Type = Message.self) -> [Message] {
        let records = self.records(field)
        if records.isEmpty { return [] }
        var messages: [Message] = []
        messages.reserveCapacity(records.count)
        for record in records {
            messages.append(Message(record: self.reader(field, record)))
        }
        return messages
    }

    /// The entries of a map whose values are not messages.
    @inlinable
    public func map<Key: FieldValue, Value: FieldValue>(_ field: Int) -> [Key: Value] {
        self.entries(field) { entry in entry.value(1) }
    }

    /// The entries of a map whose values are messages.
    @inlinable
    public func messageMap<Key: FieldValue, Message: ProtobufMessage>(_ field: Int) -> [Key: Message] {
        self.entries(field) { entry in entry.message(1) ?? Message() }
    }

    @inlinable
    func entries<Key: FieldValue, Value>(_ field: Int, _ value: (RecordReader) -> Value) -> [Key: Value] {
        let records = self.records(field)
        var map: [Key: Value] = [:]
        if records.isEmpty { return map }
        map.reserveCapacity(records.count)
        for record in records {
            let entry = self.reader(field, record)
            map[entry.value(0)] = value(entry)
        }
        return map
    }

    /// The fields that the message's descriptor does not declare.
    @inlinable
    public var unknownFields: UnknownStorage {
        self.memory.load(fromByteOffset: MemoryLayout<UnsafeRawPointer>.size, as: UInt32.self) == 0
            ? UnknownStorage() : self.collectedUnknownFields()
    }

    @inlinable
    @inline(__always)
    func values(_ field: Int) -> (start: UnsafeRawPointer?, count: Int) {
        let count = self.memory.load(fromByteOffset: Int(self.place(field).pointee.quantifier), as: Int.self)
        return (self.slot(field).load(as: UnsafeRawPointer?.self), count)
    }

    /// The records of a repeated field of messages.
    @inlinable
    func records(_ field: Int) -> UnsafeBufferPointer<UnsafeRawPointer> {
        let (start, count) = self.values(field)
        guard let start, count > 0 else { return UnsafeBufferPointer(start: nil, count: 0) }
        return UnsafeBufferPointer(start: start.assumingMemoryBound(to: UnsafeRawPointer.self), count: count)
    }

    @inlinable
    @inline(__always)
    func reader(_ field: Int, _ record: UnsafeRawPointer) -> RecordReader {
        // Message fields are linked with their messages' plans.
        RecordReader(record, self.place(field).pointee.message.unsafelyUnwrapped)
    }

    @usableFromInline
    func collectedUnknownFields() -> UnknownStorage {
        let header = self.memory.load(as: RecordHeader.self)
        var storage = UnknownStorage()
        for field in UnsafeBufferPointer(start: header.unknown, count: Int(header.unknownCount)) {
            storage.append(field)
        }
        return storage
    }
}
