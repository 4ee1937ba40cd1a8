// SPDX-License-Identifier: Apache-2.0
/// A walk over the fields of a header that is known to be complete.
struct FieldCursor {
    private let plan: HeaderPlan
    private let bytes: UnsafeRawBufferPointer
    private var index = 0
    private var end = 0
    /// The beginning of the last field.
    private(set) var start = 0
    /// The number in the last field, where it has one.
    private(set) var number: UInt32 = 0

    init(_ plan: HeaderPlan, _ bytes: UnsafeRawBufferPointer) {
        self.plan = plan
        self.bytes = bytes
    }

    /// The next field; nil after the last one, or if there are not enough bytes for it.
    mutating func next() -> HeaderField? {
        guard self.index < self.plan.fields.count else { return nil }
        let field = self.plan.fields[self.index]
        self.index += 1
        self.start = self.end
        if field.width > 0 {
            self.end += field.width
            guard self.end <= self.bytes.count else { return nil }
            if field.kind == .flags {
                self.number = UInt32(truncatingIfNeeded: field.code.load(self.bytes, at: self.start))
            }
        } else {
            guard case .number(let number, let end) = field.code.digits(self.bytes, at: self.end) else { return nil }
            (self.number, self.end) = (number, end)
        }
        return field
    }
}

// Headers with numbers of variable width.
extension HeaderPlan {
    /// Reads the header that starts `bytes`, field by field; nil if more bytes are needed.
    ///
    /// The result does not depend on how the bytes are split: an error is determined by the bytes up to the fault.
    func variableHeader(_ bytes: UnsafeRawBufferPointer) throws(FrameError) -> FrameHeader? {
        // A longer header is refused wherever its bytes end.
        let bytes = UnsafeRawBufferPointer(rebasing: bytes.prefix(WireFormat.maximumHeaderLength))
        var type: UInt32?
        var (serial, status, length): (UInt32, UInt32, UInt32) = (0, Status.ok.rawValue, 0)
        var (offset, endOfLength) = (0, 0)
        for field in self.fields {
            let value: UInt32
            if field.kind == .constant || field.kind == .custom {
                if field.kind == .constant { try self.checkConstant(field, in: bytes, at: offset) }
                offset += field.width
                guard offset <= bytes.count else { return try self.incomplete(bytes) }
                continue
            } else if field.width > 0 {
                guard offset + field.width <= bytes.count else { return try self.incomplete(bytes) }
                let number = field.code.load(bytes, at: offset)
                guard number <= UInt64(UInt32.max) || field.kind == .flags else {
                    throw .illegalNumber(field, Array(bytes[offset..<offset + field.width]), offset: offset)
                }
                value = UInt32(truncatingIfNeeded: number)
                offset += field.width
            } else {
                switch field.code.digits(bytes, at: offset) {
                case .incomplete: return try self.incomplete(bytes)
                case .illegal(let end): throw .illegalNumber(field, Array(bytes[offset..<end]), offset: offset)
                case .number(let number, let end): (value, offset) = (number, end)
                }
            }
            switch field.kind {
            case .type: type = value
            case .serial: serial = value
            case .status: status = value
            case .length: (length, endOfLength) = (value, offset)
            case .headerLength, .flags, .constant, .custom: break
            }
        }
        let knownType = type ?? self.impliedType(serial)
        if self.lengthCounts != .payload {
            let least = (self.lengthCounts == .frame ? offset : offset - endOfLength) + self.trailerLength
            guard Int(length) >= least else {
                throw .frameTooShort(
                    length: Int(length),
                    least: least,
                    counts: self.lengthCounts,
                    type: knownType,
                    serial: serial
                )
            }
            length -= UInt32(least)
        }
        return FrameHeader(
            type: knownType,
            serial: serial,
            status: self.hasStatus ? self.statuses.decoded(status) : .ok,
            length: length,
            headerLength: offset
        )
    }

    private func incomplete(_ bytes: UnsafeRawBufferPointer) throws(FrameError) -> FrameHeader? {
        guard bytes.count < WireFormat.maximumHeaderLength else { throw .headerTooLong() }
        return nil
    }

    /// Compares the part of a constant that has arrived.
    private func checkConstant(
        _ field: HeaderField,
        in bytes: UnsafeRawBufferPointer,
        at offset: Int
    ) throws(FrameError) {
        for index in 0..<min(field.width, bytes.count - offset)
        where bytes[offset + index] != self.constants[field.position + index] {
            throw .wrongConstant(
                expected: Array(self.constants[field.position..<field.position + field.width]),
                received: Array(bytes[offset...offset + index]),
                offset: offset
            )
        }
    }
}
