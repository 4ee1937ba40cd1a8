// Arrays in records, for engines other than protobuf-c.

extension RecordUnknown {
    /// Appends a field to a record's unknown fields.
    static func append(_ field: RecordUnknown, to record: UnsafeMutableRawPointer, _ arena: RecordArena) {
        let header = record.assumingMemoryBound(to: RecordHeader.self)
        let count = Int(header.pointee.unknownCount)
        let fields = RecordArray.withRoomForOneMore(
            header.pointee.unknown.map { UnsafeMutableRawPointer($0) },
            count: count,
            size: MemoryLayout<RecordUnknown>.stride,
            arena
        ).assumingMemoryBound(to: RecordUnknown.self)
        fields[count] = field
        header.pointee.unknown = fields
        header.pointee.unknownCount += 1
    }
}

/// The values of a repeated field.
enum RecordArray {
    /// Appends a value and returns its uninitialised place.
    static func next(
        _ field: UnsafePointer<FieldPlan>,
        in record: UnsafeMutableRawPointer,
        _ arena: RecordArena
    ) -> UnsafeMutableRawPointer {
        let count = record.load(fromByteOffset: Int(field.pointee.quantifier), as: Int.self)
        let values = Self.withRoomForOneMore(
            record.load(fromByteOffset: Int(field.pointee.value), as: UnsafeMutableRawPointer?.self),
            count: count,
            size: field.pointee.kind.size,
            arena
        )
        record.storeBytes(of: values, toByteOffset: Int(field.pointee.value), as: UnsafeMutableRawPointer?.self)
        record.storeBytes(of: count + 1, toByteOffset: Int(field.pointee.quantifier), as: Int.self)
        return values + count * field.pointee.kind.size
    }

    /// Allocates storage for the first `count` values of the field and returns their uninitialised places.
    static func first(
        _ count: Int,
        _ field: UnsafePointer<FieldPlan>,
        in record: UnsafeMutableRawPointer,
        _ arena: RecordArena
    ) -> UnsafeMutableRawPointer {
        let capacity = 1 << (Int.bitWidth - max(0, count - 1).leadingZeroBitCount)
        let values = arena.take(capacity * field.pointee.kind.size)
        record.storeBytes(of: values, toByteOffset: Int(field.pointee.value), as: UnsafeMutableRawPointer.self)
        record.storeBytes(of: count, toByteOffset: Int(field.pointee.quantifier), as: Int.self)
        return values
    }

    static func isEmpty(_ field: UnsafePointer<FieldPlan>, in record: UnsafeMutableRawPointer) -> Bool {
        record.load(fromByteOffset: Int(field.pointee.quantifier), as: Int.self) == 0
    }

    /// The array of `count` values, or a larger copy if it is full. The capacity is a power of two, or 0.
    fileprivate static func withRoomForOneMore(
        _ values: UnsafeMutableRawPointer?,
        count: Int,
        size: Int,
        _ arena: RecordArena
    ) -> UnsafeMutableRawPointer {
        if let values, count & (count - 1) != 0 { return values }
        let larger = arena.take(max(1, count * 2) * size)
        if let values { larger.copyMemory(from: values, byteCount: count * size) }
        return larger
    }
}
