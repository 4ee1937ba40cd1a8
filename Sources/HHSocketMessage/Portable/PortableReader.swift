/// Decodes bytes into records. It validates everything itself and needs no scan before.
struct PortableReader {
    let arena: RecordArena
    /// The maximum memory for records, in bytes.
    let memoryLimit: Int

    /// Decodes a message into a record. Its strings and bytes point into `bytes`, which must outlive it.
    func read(
        _ bytes: UnsafeRawBufferPointer,
        _ plan: UnsafePointer<MessagePlan>
    ) throws(MessageError) -> UnsafeRawPointer {
        guard bytes.count <= MessageLimits.length else {
            throw MessageError(.tooLarge, in: plan.pointee.descriptor.name)
        }
        let record = self.arena.takeZeroed(plan.pointee.recordLength)
        var reader = WireReader(bytes)
        try self.read(&reader, into: record, plan, depth: 1)
        // Only at the end, because a message may be sent in several parts, which are merged.
        if plan.pointee.mayLackRequired { try RequiredFields.check(UnsafeRawPointer(record), plan) }
        return UnsafeRawPointer(record)
    }

    /// Fills a record, merging with its present content.
    private func read(
        _ reader: inout WireReader,
        into record: UnsafeMutableRawPointer,
        _ plan: UnsafePointer<MessagePlan>,
        depth: Int
    ) throws(MessageError) {
        while !reader.isAtEnd {
            guard self.arena.state.pointee.held <= self.memoryLimit else {
                throw MessageError(.needsTooMuchMemory(limit: self.memoryLimit), in: plan.pointee.descriptor.name)
            }
            var inner: (reader: WireReader, field: UnsafePointer<FieldPlan>, plan: UnsafePointer<MessagePlan>)?
            do throws(WireFailure) {
                let (number, type) = try reader.tag()
                guard let index = plan.pointee.index(of: number) else {
                    RecordUnknown.append(try reader.unknownValue(number, type), to: record, self.arena)
                    continue
                }
                let field = UnsafePointer(plan.pointee.fields + index)
                guard type == field.pointee.kind.wireType else {
                    guard type == .lengthDelimited, field.pointee.isRepeated else {
                        throw reader.failure(.wireTypeMismatch(field: plan.pointee.name(of: index)))
                    }
                    var packed = try reader.delimited()
                    try self.readPacked(&packed, index, plan, into: record)
                    continue
                }
                switch field.pointee.kind {
                case .message:
                    inner = (try reader.delimited(), field, field.pointee.message.unsafelyUnwrapped)
                case .string, .bytes:
                    let bytes = try reader.delimited()
                    if field.pointee.kind == .string, !UTF8Check.isValid(bytes.cursor, bytes.end) {
                        throw bytes.failure(.invalidUTF8(field: plan.pointee.name(of: index)))
                    }
                    let value = RecordBytes(
                        count: bytes.rest.count,
                        start: UnsafeMutableRawPointer(mutating: bytes.rest.baseAddress)
                    )
                    self.place(field, in: record).storeBytes(of: value, as: RecordBytes.self)
                case .enum where field.pointee.isClosed:
                    try self.readClosedEnum(&reader, index, plan, into: record)
                default:
                    try self.readNumber(&reader, field.pointee.kind, into: self.place(field, in: record))
                }
            } catch {
                throw MessageError(error.reason, in: plan.pointee.descriptor.name, at: error.offset)
            }
            if var inner {
                guard depth < MessageLimits.standard.depth || inner.plan.pointee.isEntryOfValues else {
                    throw MessageError(.tooDeep(limit: MessageLimits.standard.depth), in: plan.pointee.descriptor.name)
                }
                let message = self.message(inner.field, inner.plan, in: record)
                try self.read(&inner.reader, into: message, inner.plan, depth: depth + 1)
            }
        }
    }

    /// Reads packed values. If the array is empty, their number is counted first, so that it need not grow.
    private func readPacked(
        _ packed: inout WireReader,
        _ index: Int,
        _ plan: UnsafePointer<MessagePlan>,
        into record: UnsafeMutableRawPointer
    ) throws(WireFailure) {
        let field = UnsafePointer(plan.pointee.fields + index)
        let kind = field.pointee.kind
        if field.pointee.isClosed {
            while !packed.isAtEnd { try self.readClosedEnum(&packed, index, plan, into: record) }
            return
        }
        guard RecordArray.isEmpty(field, in: record) else {
            while !packed.isAtEnd {
                try self.readNumber(&packed, kind, into: RecordArray.next(field, in: record, self.arena))
            }
            return
        }
        let count = packed.count(of: kind.wireType)
        guard count > 0 else { return }
        var value = RecordArray.first(count, field, in: record, self.arena)
        for _ in 0..<count {
            try self.readNumber(&packed, kind, into: value)
            value += kind.size
        }
    }

    /// Reads a number of a closed enumeration. An undeclared number becomes an unknown field; the field keeps its
    /// present value.
    private func readClosedEnum(
        _ reader: inout WireReader,
        _ index: Int,
        _ plan: UnsafePointer<MessagePlan>,
        into record: UnsafeMutableRawPointer
    ) throws(WireFailure) {
        let field = UnsafePointer(plan.pointee.fields + index)
        var behind = reader
        let number = UInt32(truncatingIfNeeded: try behind.varint())
        guard plan.pointee.knows(number, field: index) else {
            RecordUnknown.append(try reader.unknownValue(field.pointee.number, .varint), to: record, self.arena)
            return
        }
        reader = behind
        self.place(field, in: record).storeBytes(of: number, as: UInt32.self)
    }

    /// The address of the next value of a field, which is marked as present.
    private func place(
        _ field: UnsafePointer<FieldPlan>,
        in record: UnsafeMutableRawPointer
    ) -> UnsafeMutableRawPointer {
        if field.pointee.isRepeated { return RecordArray.next(field, in: record, self.arena) }
        let quantifier = field.pointee.shape == .oneof ? field.pointee.number : 1
        record.storeBytes(of: quantifier, toByteOffset: Int(field.pointee.quantifier), as: UInt32.self)
        return record + Int(field.pointee.value)
    }

    /// The record of the next message of a field. A singular field's present message is reused.
    private func message(
        _ field: UnsafePointer<FieldPlan>,
        _ plan: UnsafePointer<MessagePlan>,
        in record: UnsafeMutableRawPointer
    ) -> UnsafeMutableRawPointer {
        let quantifier = record.load(fromByteOffset: Int(field.pointee.quantifier), as: UInt32.self)
        let place = self.place(field, in: record)
        let isThere = field.pointee.shape == .oneof ? quantifier == field.pointee.number : quantifier != 0
        if !field.pointee.isRepeated, isThere, let message = place.load(as: UnsafeMutableRawPointer?.self) {
            return message
        }
        let message = self.arena.takeZeroed(plan.pointee.recordLength)
        place.storeBytes(of: message, as: UnsafeMutableRawPointer.self)
        return message
    }

    private func readNumber(
        _ reader: inout WireReader,
        _ kind: FieldKind,
        into place: UnsafeMutableRawPointer
    ) throws(WireFailure) {
        switch kind {
        case .int32, .uint32, .enum:
            place.storeBytes(of: UInt32(truncatingIfNeeded: try reader.varint()), as: UInt32.self)
        case .sint32:
            let number = UInt32(truncatingIfNeeded: try reader.varint())
            place.storeBytes(of: number >> 1 ^ (0 &- (number & 1)), as: UInt32.self)
        case .int64, .uint64:
            place.storeBytes(of: try reader.varint(), as: UInt64.self)
        case .sint64:
            let number = try reader.varint()
            place.storeBytes(of: number >> 1 ^ (0 &- (number & 1)), as: UInt64.self)
        case .bool:
            place.storeBytes(of: try reader.varint() == 0 ? 0 : 1, as: UInt32.self)
        case .sfixed32, .fixed32, .float:
            place.storeBytes(of: try reader.fixed(UInt32.self), as: UInt32.self)
        case .sfixed64, .fixed64, .double:
            place.storeBytes(of: try reader.fixed(UInt64.self), as: UInt64.self)
        case .string, .bytes, .message:
            assertionFailure("\(kind) is no number")
        }
    }
}
