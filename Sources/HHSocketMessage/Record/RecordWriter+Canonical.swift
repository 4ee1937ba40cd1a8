/// Canonical records, whose bytes are the same for equal messages.
@_documentation(visibility: internal)
extension RecordWriter {
    /// Sorts the entries of maps by key, in this record and in those nested in it. Everything else is ordered already:
    /// fields by number, repeated values and unknown fields as they were appended.
    @usableFromInline
    func sortMaps() { Self.sortMaps(in: self.memory, self.plan) }

    /// Recurses no deeper than the record was filled, so no deeper than ``MessageLimits/depth``.
    private static func sortMaps(in record: UnsafeMutableRawPointer, _ plan: UnsafePointer<MessagePlan>) {
        let reader = RecordReader(UnsafeRawPointer(record), plan)
        for index in 0..<plan.pointee.count {
            let field = UnsafePointer(plan.pointee.fields + index)
            guard field.pointee.kind == .message, let inner = field.pointee.message else { continue }
            switch field.pointee.shape {
            case .singular, .required:
                if reader.flag(index) != 0 { Self.sortMaps(inMessageAt: record + Int(field.pointee.value), inner) }
            case .oneof:
                if reader.oneof(index) == field.pointee.number {
                    Self.sortMaps(inMessageAt: record + Int(field.pointee.value), inner)
                }
            case .repeated, .packed:
                let count = record.load(fromByteOffset: Int(field.pointee.quantifier), as: Int.self)
                let start = record.load(fromByteOffset: Int(field.pointee.value), as: UnsafeMutableRawPointer?.self)
                guard count > 0, let start else { continue }
                let records = UnsafeMutableBufferPointer(
                    start: start.assumingMemoryBound(to: UnsafeMutableRawPointer.self),
                    count: count
                )
                for record in records { Self.sortMaps(in: record, inner) }
                if field.pointee.isMap { Self.sort(records, by: UnsafePointer(inner.pointee.fields)) }
            }
        }
    }

    private static func sortMaps(inMessageAt value: UnsafeMutableRawPointer, _ plan: UnsafePointer<MessagePlan>) {
        if let record = value.load(as: UnsafeMutableRawPointer?.self) { Self.sortMaps(in: record, plan) }
    }

    /// Sorts entries by their key, which is their first field. The keys of a map are distinct.
    private static func sort(
        _ entries: UnsafeMutableBufferPointer<UnsafeMutableRawPointer>,
        by key: UnsafePointer<FieldPlan>
    ) {
        let offset = Int(key.pointee.value)
        var entries = entries
        switch key.pointee.kind {
        case .string, .bytes, .message:
            // Keys are never bytes or messages.
            entries.sort { one, other in
                let one = one.load(fromByteOffset: offset, as: RecordBytes.self)
                let other = other.load(fromByteOffset: offset, as: RecordBytes.self)
                return one.buffer.lexicographicallyPrecedes(other.buffer)
            }
        case .int64, .sint64, .sfixed64, .uint64, .fixed64, .double:
            entries.sort {
                $0.load(fromByteOffset: offset, as: UInt64.self) < $1.load(fromByteOffset: offset, as: UInt64.self)
            }
        case .int32, .sint32, .sfixed32, .uint32, .fixed32, .float, .bool, .enum:
            // Any deterministic order suffices, so negative numbers may come last.
            entries.sort {
                $0.load(fromByteOffset: offset, as: UInt32.self) < $1.load(fromByteOffset: offset, as: UInt32.self)
            }
        }
    }
}
