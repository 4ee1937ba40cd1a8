/// Writes the values of a message into its record. A field is given by its index among the message's fields, sorted by
/// number. It is valid as long as the arena.
struct RecordWriter {
    let memory: UnsafeMutableRawPointer
    let plan: UnsafePointer<MessagePlan>
    let arena: RecordArena
    /// The nesting depth of the message; 1 for the outermost.
    let depth: Int

    /// Creates a zeroed record.
    init(_ plan: UnsafePointer<MessagePlan>, _ arena: RecordArena, depth: Int) {
        self.plan = plan
        self.arena = arena
        self.depth = depth
        self.memory = arena.takeZeroed(plan.pointee.recordLength)
        // protobuf-c reads the message's type from here.
        self.memory.storeBytes(of: plan.pointee.protobufC, as: UnsafeMutableRawPointer?.self)
    }

    func place(_ field: Int) -> UnsafePointer<FieldPlan> { UnsafePointer(self.plan.pointee.fields + field) }

    /// Creates a record for a message nested in this one.
    func inner(_ field: Int) throws(MessageError) -> RecordWriter {
        guard self.depth < MessageLimits.standard.depth, let plan = self.place(field).pointee.message else {
            throw MessageError(
                .tooDeep(limit: MessageLimits.standard.depth),
                in: self.plan.pointee.descriptor.name
            )
        }
        return RecordWriter(plan, self.arena, depth: self.depth + 1)
    }

    func takeArray(_ field: Int, count: Int, size: Int) -> UnsafeMutableRawPointer {
        let place = self.place(field)
        let start = self.arena.take(count * size)
        self.memory.storeBytes(of: start, toByteOffset: Int(place.pointee.value), as: UnsafeMutableRawPointer.self)
        self.memory.storeBytes(of: count, toByteOffset: Int(place.pointee.quantifier), as: Int.self)
        return start
    }

    func missing(_ field: Int) -> MessageError {
        MessageError(
            .missingRequiredField(field: self.plan.pointee.name(of: field)),
            in: self.plan.pointee.descriptor.name
        )
    }
}
