/// Validates bytes before they are passed to protobuf-c, which recurses without a limit and does not check UTF-8.
struct MessageScan {
    /// Whether protobuf-c may decode the bytes incorrectly: a singular message field occurs more than once, so its
    /// messages must be merged (or cannot be tracked); or a closed enumeration does not declare a number, which must
    /// become an unknown field.
    private(set) var needsPortableEngine = false

    mutating func check(_ bytes: UnsafeRawBufferPointer, _ plan: UnsafePointer<MessagePlan>) throws(MessageError) {
        guard bytes.count <= MessageLimits.length else {
            throw MessageError(.tooLarge, in: plan.pointee.descriptor.name)
        }
        var reader = WireReader(bytes)
        try self.check(&reader, plan, depth: 1)
    }

    private mutating func check(
        _ reader: inout WireReader,
        _ plan: UnsafePointer<MessagePlan>,
        depth: Int
    ) throws(MessageError) {
        var seen: UInt64 = 0
        while !reader.isAtEnd {
            var inner: (reader: WireReader, plan: UnsafePointer<MessagePlan>)?
            do throws(WireFailure) {
                let (number, type) = try reader.tag()
                if let index = plan.pointee.index(of: number) {
                    inner = try self.checkValue(&reader, type, plan, index, &seen)
                } else {
                    try reader.skip(type)
                }
            } catch {
                throw MessageError(error.reason, in: plan.pointee.descriptor.name, at: error.offset)
            }
            if var inner {
                guard depth < MessageLimits.standard.depth || inner.plan.pointee.isEntryOfValues else {
                    throw MessageError(.tooDeep(limit: MessageLimits.standard.depth), in: plan.pointee.descriptor.name)
                }
                try self.check(&inner.reader, inner.plan, depth: depth + 1)
            }
        }
    }

    /// Checks one value. Returns a reader of the nested message to check next, if the value is one.
    @inline(__always)
    private mutating func checkValue(
        _ reader: inout WireReader,
        _ type: WireType,
        _ plan: UnsafePointer<MessagePlan>,
        _ index: Int,
        _ seen: inout UInt64
    ) throws(WireFailure) -> (WireReader, UnsafePointer<MessagePlan>)? {
        let field = plan.pointee.fields + index
        let kind = field.pointee.kind
        guard type == kind.wireType else {
            guard type == .lengthDelimited, field.pointee.isRepeated else {
                throw reader.failure(.wireTypeMismatch(field: plan.pointee.name(of: index)))
            }
            var packed = try reader.delimited()
            while !packed.isAtEnd { try self.checkNumber(&packed, kind.wireType, plan, index) }
            return nil
        }
        guard type == .lengthDelimited else {
            try self.checkNumber(&reader, type, plan, index)
            return nil
        }
        let inner = try reader.delimited()
        switch kind {
        case .string:
            guard UTF8Check.isValid(inner.cursor, inner.end) else {
                throw inner.failure(.invalidUTF8(field: plan.pointee.name(of: index)))
            }
            return nil
        case .message:
            if !field.pointee.isRepeated {
                // Only the first 64 such fields can be tracked.
                let bit: UInt64 = field.pointee.ordinal < 64 ? 1 << UInt64(field.pointee.ordinal) : 0
                if seen & bit != 0 || bit == 0 { self.needsPortableEngine = true }
                seen |= bit
            }
            return field.pointee.message.map { (inner, $0) }
        default:
            return nil
        }
    }

    @inline(__always)
    private mutating func checkNumber(
        _ reader: inout WireReader,
        _ type: WireType,
        _ plan: UnsafePointer<MessagePlan>,
        _ index: Int
    ) throws(WireFailure) {
        guard plan.pointee.fields[index].isClosed else { return try reader.skip(type) }
        let number = UInt32(truncatingIfNeeded: try reader.varint())
        if !plan.pointee.knows(number, field: index) { self.needsPortableEngine = true }
    }
}
