/// Reads the values of a message from its record. A field is given by its index among the message's fields, sorted by
/// number. It is valid as long as the record.
struct RecordReader {
    let memory: UnsafeRawPointer
    let plan: UnsafePointer<MessagePlan>

    init(_ memory: UnsafeRawPointer, _ plan: UnsafePointer<MessagePlan>) {
        self.memory = memory
        self.plan = plan
    }

    func place(_ field: Int) -> UnsafePointer<FieldPlan> { UnsafePointer(self.plan.pointee.fields + field) }

    func flag(_ field: Int) -> UInt32 {
        self.memory.load(fromByteOffset: Int(self.place(field).pointee.quantifier), as: UInt32.self)
    }

    func slot(_ field: Int) -> UnsafeRawPointer { self.memory + Int(self.place(field).pointee.value) }

    /// The number of the field that a oneof holds, or 0.
    ///
    /// - Parameter field: The index of any field of the oneof.
    func oneof(_ field: Int) -> UInt32 { self.flag(field) }

    /// The values of a repeated field.
    func values(_ field: Int) -> (start: UnsafeRawPointer?, count: Int) {
        let count = self.memory.load(fromByteOffset: Int(self.place(field).pointee.quantifier), as: Int.self)
        return (self.slot(field).load(as: UnsafeRawPointer?.self), count)
    }

    /// The records of a repeated field of messages.
    func records(_ field: Int) -> UnsafeBufferPointer<UnsafeRawPointer> {
        let (start, count) = self.values(field)
        guard let start, count > 0 else { return UnsafeBufferPointer(start: nil, count: 0) }
        return UnsafeBufferPointer(start: start.assumingMemoryBound(to: UnsafeRawPointer.self), count: count)
    }
}
