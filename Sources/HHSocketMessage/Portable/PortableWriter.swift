/// Encodes records from the last byte to the first, so that the length of nested content is known before its prefix is
/// written.
struct PortableWriter {
    let arena: RecordArena
    private var start: UnsafeMutableRawPointer
    private var cursor: UnsafeMutableRawPointer
    private var end: UnsafeMutableRawPointer

    init(arena: RecordArena) {
        self.arena = arena
        let capacity = 1 << 10
        self.start = arena.take(capacity)
        self.end = self.start + capacity
        self.cursor = self.end
    }

    /// Encodes a record that has all its required fields.
    static func bytes(of record: UnsafeRawPointer, _ plan: UnsafePointer<MessagePlan>) throws(MessageError) -> [UInt8] {
        let written: Result<[UInt8], MessageError> = RecordArena.with { arena in
            var writer = PortableWriter(arena: arena)
            writer.write(record, plan)
            do throws(MessageError) {
                return .success(Array(try writer.finished(plan)))
            } catch {
                return .failure(error)
            }
        }
        return try written.get()
    }

    /// The bytes written so far.
    func finished(_ plan: UnsafePointer<MessagePlan>) throws(MessageError) -> UnsafeRawBufferPointer {
        guard self.count <= MessageLimits.length else {
            throw MessageError(.tooLarge, in: plan.pointee.descriptor.name)
        }
        return UnsafeRawBufferPointer(start: self.cursor, count: self.count)
    }

    private var count: Int { self.end - self.cursor }

    /// Writes a message in front of the bytes written so far.
    mutating func write(_ record: UnsafeRawPointer, _ plan: UnsafePointer<MessagePlan>) {
        let header = record.load(as: RecordHeader.self)
        for field in UnsafeBufferPointer(start: header.unknown, count: Int(header.unknownCount)).reversed() {
            self.write(field.value.buffer)
            self.writeVarint(UInt64(field.number) << 3 | UInt64(field.wireType))
        }
        let reader = RecordReader(record, plan)
        for index in (0..<plan.pointee.count).reversed() {
            let field = UnsafePointer(plan.pointee.fields + index)
            switch field.pointee.shape {
            case .repeated:
                let (values, count) = reader.values(index)
                guard let values, count > 0 else { continue }
                for number in (0..<count).reversed() {
                    self.writeField(field, at: values + number * field.pointee.kind.size)
                }
            case .packed:
                let (values, count) = reader.values(index)
                guard let values, count > 0 else { continue }
                let before = self.count
                for number in (0..<count).reversed() {
                    self.writeValue(field, at: values + number * field.pointee.kind.size)
                }
                self.writeVarint(UInt64(self.count - before))
                self.writeTag(field, .lengthDelimited)
            case .oneof:
                if reader.oneof(index) == field.pointee.number { self.writeField(field, at: reader.slot(index)) }
            case .singular, .required:
                if reader.flag(index) != 0 { self.writeField(field, at: reader.slot(index)) }
            }
        }
    }

    private mutating func writeField(_ field: UnsafePointer<FieldPlan>, at value: UnsafeRawPointer) {
        self.writeValue(field, at: value)
        self.writeTag(field, field.pointee.kind.wireType)
    }

    private mutating func writeTag(_ field: UnsafePointer<FieldPlan>, _ type: WireType) {
        self.writeVarint(UInt64(field.pointee.number) << 3 | UInt64(type.rawValue))
    }

    private mutating func writeValue(_ field: UnsafePointer<FieldPlan>, at value: UnsafeRawPointer) {
        switch field.pointee.kind {
        case .int32, .enum:
            // Negative numbers have ten bytes, as if they had 64 bits.
            self.writeVarint(UInt64(bitPattern: Int64(value.load(as: Int32.self))))
        case .uint32, .bool:
            self.writeVarint(UInt64(value.load(as: UInt32.self)))
        case .sint32:
            let number = value.load(as: Int32.self)
            self.writeVarint(UInt64(UInt32(bitPattern: number << 1 ^ number >> 31)))
        case .int64, .uint64:
            self.writeVarint(value.load(as: UInt64.self))
        case .sint64:
            let number = value.load(as: Int64.self)
            self.writeVarint(UInt64(bitPattern: number << 1 ^ number >> 63))
        case .sfixed32, .fixed32, .float:
            self.takeInFront(4).storeBytes(of: value.load(as: UInt32.self).littleEndian, as: UInt32.self)
        case .sfixed64, .fixed64, .double:
            self.takeInFront(8).storeBytes(of: value.load(as: UInt64.self).littleEndian, as: UInt64.self)
        case .string, .bytes:
            let bytes = value.load(as: RecordBytes.self)
            self.write(bytes.buffer)
            self.writeVarint(UInt64(bytes.count))
        case .message:
            guard let record = value.load(as: UnsafeRawPointer?.self), let plan = field.pointee.message else { return }
            let before = self.count
            self.write(record, plan)
            self.writeVarint(UInt64(self.count - before))
        }
    }

    private mutating func writeVarint(_ value: UInt64) {
        if value < 0x80 {
            self.takeInFront(1).storeBytes(of: UInt8(value), as: UInt8.self)
            return
        }
        let length = (64 - value.leadingZeroBitCount + 6) / 7
        let place = self.takeInFront(length)
        var rest = value
        for index in 0..<length - 1 {
            place.storeBytes(of: UInt8(truncatingIfNeeded: rest) | 0x80, toByteOffset: index, as: UInt8.self)
            rest >>= 7
        }
        place.storeBytes(of: UInt8(rest), toByteOffset: length - 1, as: UInt8.self)
    }

    private mutating func write(_ bytes: UnsafeRawBufferPointer) {
        guard let source = bytes.baseAddress else { return }
        self.takeInFront(bytes.count).copyMemory(from: source, byteCount: bytes.count)
    }

    /// Reserves `length` bytes in front of the bytes written so far.
    @inline(__always)
    private mutating func takeInFront(_ length: Int) -> UnsafeMutableRawPointer {
        if self.cursor - self.start < length { self.grow(by: length) }
        self.cursor -= length
        return self.cursor
    }

    private mutating func grow(by length: Int) {
        let count = self.count
        let capacity = max(2 * (self.end - self.start), count + length)
        let larger = self.arena.take(capacity)
        (larger + capacity - count).copyMemory(from: self.cursor, byteCount: count)
        self.start = larger
        self.end = larger + capacity
        self.cursor = self.end - count
    }
}
