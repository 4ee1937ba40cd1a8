/// Writes the values of a message into its record. A field is given by its index among the message's fields, sorted by
/// number.
///
/// Used only by generated code. It is valid only until the function that receives it returns.
@frozen
@_documentation(visibility: internal)
public struct RecordWriter {
    @usableFromInline let memory: UnsafeMutableRawPointer
    @usableFromInline let plan: UnsafePointer<MessagePlan>
    @usableFromInline let arena: RecordArena
    /// The nesting depth of the message; 1 for the outermost.
    @usableFromInline let depth: Int

    /// Creates a zeroed record.
    @inlinable
    init(_ plan: UnsafePointer<MessagePlan>, _ arena: RecordArena, depth: Int) {
        self.plan = plan
        self.arena = arena
        self.depth = depth
        self.memory = arena.takeZeroed(plan.pointee.recordLength)
        // protobuf-c reads the message's type from here.
        self.memory.storeBytes(of: plan.pointee.protobufC, as: UnsafeMutableRawPointer?.self)
    }

    @inlinable
    @inline(__always)
    func place(_ field: Int) -> UnsafePointer<FieldPlan> { UnsafePointer(self.plan.pointee.fields + field) }

    @inlinable
    @inline(__always)
    func store<Value: FieldValue>(_ field: Int, _ value: Value, quantifier: UInt32) {
        let place = self.place(field)
        value.storeProtobufField(RecordSlot(self.memory + Int(place.pointee.value), self.arena))
        self.memory.storeBytes(of: quantifier, toByteOffset: Int(place.pointee.quantifier), as: UInt32.self)
    }

    /// Writes a value unless it is zero.
    @inlinable
    public func value<Value: FieldValue>(_ field: Int, _ value: Value) {
        if !value.isProtobufZero { self.store(field, value, quantifier: 1) }
    }

    /// Writes a value unless it is nil.
    @inlinable
    public func optional<Value: FieldValue>(_ field: Int, _ value: Value?) {
        if let value { self.store(field, value, quantifier: 1) }
    }

    /// Writes the value of a required field.
    ///
    /// - Throws: ``MessageError`` if it is nil.
    @inlinable
    public func required<Value: FieldValue>(_ field: Int, _ value: Value?) throws(MessageError) {
        guard let value else { throw self.missing(field) }
        self.store(field, value, quantifier: 1)
    }

    /// Writes the value of a oneof, given the field that holds it.
    @inlinable
    public func oneof<Value: FieldValue>(_ field: Int, _ value: Value) {
        self.store(field, value, quantifier: self.place(field).pointee.number)
    }

    /// Writes the values of a repeated field.
    @inlinable
    public func array<Value: FieldValue>(_ field: Int, _ values: [Value]) {
        if values.isEmpty { return }
        let start = self.takeArray(field, count: values.count, size: Value.protobufFieldSize)
        for (index, value) in values.enumerated() {
            value.storeProtobufField(RecordSlot(start + index * Value.protobufFieldSize, self.arena))
        }
    }

    /// Writes a message unless it is nil.
    @inlinable
    public func message<Message: ProtobufMessage>(_ field: Int, _ message: Message?) throws(MessageError) {
        if let message { try self.store(field, message, quantifier: 1) }
    }

    /// Writes the message of a required field.
    ///
    /// - Throws: ``MessageError`` if it is nil.
    @inlinable
    public func requiredMessage<Message: ProtobufMessage>(_ field: Int, _ message: Message?) throws(MessageError) {
        guard let message else { throw self.missing(field) }
        try self.store(field, message, quantifier: 1)
    }

    /// Writes the message of a oneof, given the field that holds it.
    @inlinable
    public func oneofMessage<Message: ProtobufMessage>(_ field: Int, _ message: Message) throws(MessageError) {
        try self.store(field, message, quantifier: self.place(field).pointee.number)
    }

    /// Writes the messages of a repeated field.
    @inlinable
    public func messages<Message: ProtobufMessage>(_ field: Int, _ messages: [Message]) throws(MessageError) {
        if messages.isEmpty { return }
        let start = self.takeRecords(field, count: messages.count)
        var index = 0
        while index < messages.count {
            let record = try self.inner(field)
            start[index] = record.memory
            try messages[index].write(to: record)
            index += 1
        }
    }

    /// Writes the entries of a map whose values are not messages.
    @inlinable
    public func map<Key: FieldValue, Value: FieldValue>(_ field: Int, _ map: [Key: Value]) {
        if map.isEmpty { return }
        let start = self.takeRecords(field, count: map.count)
        for (index, entry) in map.enumerated() {
            // Nothing is nested in such an entry, so it does not count for the depth.
            let record = RecordWriter(self.innerPlan(field), self.arena, depth: self.depth)
            start[index] = record.memory
            record.store(0, entry.key, quantifier: 1)
            record.store(1, entry.value, quantifier: 1)
        }
    }

    /// Writes the entries of a map whose values are messages.
    @inlinable
    public func messageMap<Key: FieldValue, Message: ProtobufMessage>(
        _ field: Int,
        _ map: [Key: Message]
    ) throws(MessageError) {
        if map.isEmpty { return }
        let start = self.takeRecords(field, count: map.count)
        var index = map.startIndex
        var number = 0
        while index != map.endIndex {
            let record = try self.inner(field)
            start[number] = record.memory
            record.store(0, map[index].key, quantifier: 1)
            try record.store(1, map[index].value, quantifier: 1)
            map.formIndex(after: &index)
            number += 1
        }
    }

    /// Writes the message's unknown fields.
    @inlinable
    public func unknownFields(_ fields: UnknownStorage) {
        if !fields.isEmpty { self.addUnknownFields(fields) }
    }

    @inlinable
    func store<Message: ProtobufMessage>(_ field: Int, _ message: Message, quantifier: UInt32) throws(MessageError) {
        let record = try self.inner(field)
        let place = self.place(field)
        self.memory.storeBytes(
            of: record.memory,
            toByteOffset: Int(place.pointee.value),
            as: UnsafeMutableRawPointer.self
        )
        self.memory.storeBytes(of: quantifier, toByteOffset: Int(place.pointee.quantifier), as: UInt32.self)
        try message.write(to: record)
    }

    @inlinable
    @inline(__always)
    func innerPlan(_ field: Int) -> UnsafePointer<MessagePlan> {
        // Message fields are linked with their messages' plans.
        self.place(field).pointee.message.unsafelyUnwrapped
    }

    /// Creates a record for a message nested in this one.
    @inlinable
    func inner(_ field: Int) throws(MessageError) -> RecordWriter {
        guard self.depth < MessageLimits.depth else { throw self.tooDeep(field) }
        return RecordWriter(self.innerPlan(field), self.arena, depth: self.depth + 1)
    }

    @inlinable
    func takeArray(_ field: Int, count: Int, size: Int) -> UnsafeMutableRawPointer {
        let place = self.place(field)
        let start = self.arena.take(count * size)
        self.memory.storeBytes(of: start, toByteOffset: Int(place.pointee.value), as: UnsafeMutableRawPointer.self)
        self.memory.storeBytes(of: count, toByteOffset: Int(place.pointee.quantifier), as: Int.self)
        return start
    }

    @inlinable
    func takeRecords(_ field: Int, count: Int) -> UnsafeMutablePointer<UnsafeMutableRawPointer> {
        self.takeArray(field, count: count, size: MemoryLayout<UnsafeMutableRawPointer>.size)
            .bindMemory(to: UnsafeMutableRawPointer.self, capacity: count)
    }

    @usableFromInline
    func missing(_ field: Int) -> MessageError {
        MessageError(
            .missingRequiredField(field: self.plan.pointee.name(of: field)),
            in: self.plan.pointee.descriptor.name
        )
    }

    @usableFromInline
    func tooDeep(_ field: Int) -> MessageError {
        MessageError(.tooDeep(limit: MessageLimits.depth), in: self.plan.pointee.descriptor.name)
    }

    @usableFromInline
    func addUnknownFields(_ fields: UnknownStorage) {
        fields.bytes.withUnsafeBytes { bytes in
            // They were validated when decoded, or built here, so they are complete.
            let copy = self.arena.copy(bytes)
            var reader = WireReader(copy.buffer)
            while !reader.isAtEnd, let field = reader.unknownField() {
                RecordUnknown.append(field, to: self.memory, self.arena)
            }
        }
    }
}
