// SPDX-License-Identifier: Apache-2.0
import HHSocketFoundation
import HHSocketMessage

/// Reads a message from its record. It is valid as long as the record.
struct RecordReader {
    private let memory: UnsafeRawPointer
    private let plan: UnsafePointer<MessagePlan>

    init(_ memory: UnsafeRawPointer, _ plan: UnsafePointer<MessagePlan>) {
        self.memory = memory
        self.plan = plan
    }

    var message: DynamicMessage {
        let descriptor = self.plan.pointee.descriptor
        var message = DynamicMessage(descriptor)
        for (index, field) in descriptor.fields.enumerated() {
            let fieldPlan = self.plan.pointee.fields + index
            let slot = self.memory + Int(fieldPlan.pointee.value)
            if fieldPlan.pointee.isRepeated {
                let count = self.memory.load(fromByteOffset: Int(fieldPlan.pointee.quantifier), as: Int.self)
                guard count > 0, let start = slot.load(as: UnsafeRawPointer?.self) else { continue }
                var values: [DynamicValue] = []
                values.reserveCapacity(count)
                for number in 0..<count {
                    values.append(self.value(at: start + number * field.kind.size, fieldPlan))
                }
                message.set(index, values)
            } else if self.holds(fieldPlan, slot) {
                let value = self.value(at: slot, fieldPlan)
                if field.presence != .implicit || !value.isZero { message.set(index, value) }
            }
        }
        let header = self.memory.load(as: RecordHeader.self)
        for field in UnsafeBufferPointer(start: header.unknown, count: Int(header.unknownCount)) {
            guard let type = WireType(rawValue: UInt8(truncatingIfNeeded: field.wireType)) else { continue }
            message.unknownFields.append(number: field.number, type, value: field.value.buffer)
        }
        return message
    }

    /// Whether a field that is not repeated has a value.
    private func holds(_ fieldPlan: UnsafePointer<FieldPlan>, _ slot: UnsafeRawPointer) -> Bool {
        let quantifier = self.memory.load(fromByteOffset: Int(fieldPlan.pointee.quantifier), as: UInt32.self)
        switch fieldPlan.pointee.shape {
        case .oneof: return quantifier == fieldPlan.pointee.number
        // libprotobuf-c sets no flag for messages and required fields.
        case _ where fieldPlan.pointee.kind == .message: return slot.load(as: UnsafeRawPointer?.self) != nil
        case .required: return true
        case .singular, .repeated, .packed: return quantifier != 0
        }
    }

    private func value(at slot: UnsafeRawPointer, _ fieldPlan: UnsafePointer<FieldPlan>) -> DynamicValue {
        switch fieldPlan.pointee.kind {
        case .int32, .sint32, .sfixed32, .enum: return .int32(slot.load(as: Int32.self))
        case .int64, .sint64, .sfixed64: return .int64(slot.load(as: Int64.self))
        case .uint32, .fixed32: return .uint32(slot.load(as: UInt32.self))
        case .uint64, .fixed64: return .uint64(slot.load(as: UInt64.self))
        case .float: return .float(slot.load(as: Float.self))
        case .double: return .double(slot.load(as: Double.self))
        case .bool: return .bool(slot.load(as: Int32.self) != 0)
        // It was checked before.
        case .string: return .string(String(decoding: slot.load(as: RecordBytes.self).buffer, as: UTF8.self))
        case .bytes: return .bytes(Data(slot.load(as: RecordBytes.self).buffer))
        case .message:
            // It exists: callers have checked, and elements of arrays always have one.
            guard let record = slot.load(as: UnsafeRawPointer?.self), let plan = fieldPlan.pointee.message else {
                return .message(DynamicMessage(MessageDescriptor("", [])))
            }
            return .message(RecordReader(record, plan).message)
        }
    }
}
