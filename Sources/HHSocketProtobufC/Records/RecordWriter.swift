// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage

/// Writes a message into a record. The record is valid as long as the arena.
struct RecordWriter {
    let memory: UnsafeMutableRawPointer
    private let plan: UnsafePointer<MessagePlan>
    private let arena: RecordArena

    /// Creates a zeroed record.
    init(_ plan: UnsafePointer<MessagePlan>, _ arena: RecordArena) {
        self.plan = plan
        self.arena = arena
        self.memory = arena.takeZeroed(plan.pointee.recordLength)
        // libprotobuf-c reads the message's type from here.
        self.memory.storeBytes(of: plan.pointee.protobufC, as: UnsafeMutableRawPointer.self)
    }

    /// Stores the fields of a message, which has its required fields and is not too deep.
    func fill(_ message: DynamicMessage) {
        for (index, field) in message.descriptor.fields.enumerated() {
            let fieldPlan = self.plan.pointee.fields + index
            switch message[index] {
            case .value(let value):
                if field.presence == .implicit, value.isZero { continue }
                self.store(value, at: self.memory + Int(fieldPlan.pointee.value), fieldPlan)
                let quantifier = fieldPlan.pointee.shape == .oneof ? fieldPlan.pointee.number : 1
                self.memory.storeBytes(of: quantifier, toByteOffset: Int(fieldPlan.pointee.quantifier), as: UInt32.self)
            case .values(let values):
                let start = self.arena.take(values.count * field.kind.size)
                for (number, value) in values.enumerated() {
                    self.store(value, at: start + number * field.kind.size, fieldPlan)
                }
                let offset = Int(fieldPlan.pointee.value)
                self.memory.storeBytes(of: start, toByteOffset: offset, as: UnsafeMutableRawPointer.self)
                self.memory.storeBytes(of: values.count, toByteOffset: Int(fieldPlan.pointee.quantifier), as: Int.self)
            case nil: break
            }
        }
        self.store(message.unknownFields)
    }

    private func store(
        _ value: DynamicValue,
        at slot: UnsafeMutableRawPointer,
        _ fieldPlan: UnsafePointer<FieldPlan>
    ) {
        switch value {
        case .int32(let value): slot.storeBytes(of: value, as: Int32.self)
        case .int64(let value): slot.storeBytes(of: value, as: Int64.self)
        case .uint32(let value): slot.storeBytes(of: value, as: UInt32.self)
        case .uint64(let value): slot.storeBytes(of: value, as: UInt64.self)
        case .float(let value): slot.storeBytes(of: value, as: Float.self)
        case .double(let value): slot.storeBytes(of: value, as: Double.self)
        case .bool(let value): slot.storeBytes(of: value ? 1 : 0, as: Int32.self)
        case .string(let value):
            var text = value
            slot.storeBytes(
                of: text.withUTF8 { self.arena.copy(UnsafeRawBufferPointer($0)) },
                as: RecordBytes.self
            )
        case .bytes(let value):
            slot.storeBytes(of: value.withUnsafeBytes { self.arena.copy($0) }, as: RecordBytes.self)
        case .message(let message):
            guard let plan = fieldPlan.pointee.message else { return }
            let inner = RecordWriter(plan, self.arena)
            slot.storeBytes(of: inner.memory, as: UnsafeMutableRawPointer.self)
            inner.fill(message)
        }
    }

    private func store(_ unknown: UnknownStorage) {
        guard !unknown.isEmpty else { return }
        var fields: [RecordUnknown] = []
        unknown.forEach { field in
            let value = self.arena.copy(field.value)
            fields.append(RecordUnknown(number: field.number, wireType: UInt32(field.type.rawValue), value: value))
        }
        let start = self.arena.take(fields.count * MemoryLayout<RecordUnknown>.stride)
            .assumingMemoryBound(to: RecordUnknown.self)
        start.initialize(from: fields, count: fields.count)
        let header = self.memory.assumingMemoryBound(to: RecordHeader.self)
        header.pointee.unknown = start
        header.pointee.unknownCount = UInt32(fields.count)
    }
}
