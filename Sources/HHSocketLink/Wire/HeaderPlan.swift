// SPDX-License-Identifier: Apache-2.0
/// The positions of all fields in the frames of one direction of a ``WireFormat``: the layout, ready for use.
///
/// Either every field has a fixed width, and so a fixed offset, or the header is read and written field by field
/// (``FieldCursor``).
@usableFromInline
final class HeaderPlan: Sendable {
    struct Custom: Sendable {
        var name: String
        var width: Int
        /// The index of its bytes in ``Frame/customFields``.
        var position: Int
    }

    /// A number with a fixed offset.
    private struct Slot: Sendable {
        var offset: Int
        var code: NumberCode

        @inline(__always)
        func load(_ bytes: UnsafeRawBufferPointer) -> UInt64 { self.code.load(bytes, at: self.offset) }
    }

    /// The format's name.
    let name: String
    let direction: FrameDirection
    /// The codec that reads and writes the frames; nil if the fields describe their layout.
    let codec: (any FrameCodec)?
    let fields: [HeaderField]
    /// Whether all headers have the same length, apart from a length that they announce.
    let isFixed: Bool
    /// The length of a written header in bytes; the largest if it varies.
    let length: Int
    /// The bytes of all constants, one after another.
    let constants: [UInt8]
    let customs: [Custom]
    /// The length of ``Frame/customFields``.
    let customLength: Int
    /// The separator with which a frame ends.
    let bodyEnd: [UInt8]
    /// The length in bytes of everything after the payload.
    let trailerLength: Int
    let lengthCounts: WireFormat.LengthScope
    let statuses: StatusMap
    /// The type of a frame whose header has none, if its serial is a heartbeat's, and if not.
    private let impliedTypes: (heartbeat: UInt32, serials: ClosedRange<UInt32>?, other: UInt32)?
    /// The length of the longest accepted header, if headers announce theirs.
    let longestAnnounced: Int
    /// The bits that identify a push, and their value in one.
    let pushFlag: (value: UInt32, mask: UInt32)?
    private let type: Slot?
    private let serial: Slot
    private let status: Slot?
    private let payloadLength: Slot
    private let headerLength: Slot?
    private let flags: Slot?
    /// The bytes of a header of fixed widths that ``WireFormat/LengthScope/rest`` counts.
    private let lengthBehindLength: Int
    private let hasConstants: Bool
    private let checksum: WireFormat.Checksum?
    private let tail: WireFormat.ByteOrder?
    /// The types that may follow a wrong checksum.
    private let applicationTypes: ClosedRange<UInt32>
    private let controlTypes: [UInt32]

    init(_ layout: WireFormat.Layout, _ direction: FrameDirection, codec: (any FrameCodec)? = nil) {
        let header = layout.header(direction)
        let isFixed = header.allSatisfy { $0.width != nil }
        var fields: [HeaderField] = []
        var constants: [UInt8] = []
        var customs: [Custom] = []
        var offset = 0
        var customLength = 0
        var slots: [HeaderField.Kind: Slot] = [:]
        var longestAnnounced = 0
        for field in header {
            let code = NumberCode(field.number ?? .integer())
            let kind: HeaderField.Kind
            var position = 0
            switch field.kind {
            case .word(.type, _): kind = .type
            case .word(.serial, _): kind = .serial
            case .word(.status, _): kind = .status
            case .word(.length, _): kind = .length
            case .headerLength(let upTo, _): (kind, longestAnnounced) = (.headerLength, upTo)
            case .flags(let value, _): (kind, position) = (.flags, Int(value))
            case .constant(let bytes):
                (kind, position) = (.constant, constants.count)
                constants += bytes
            case .custom(let name, let width):
                (kind, position) = (.custom, customLength)
                customs.append(Custom(name: name, width: width, position: position))
                customLength += width
            }
            if field.number != nil { slots[kind] = Slot(offset: offset, code: code) }
            let width = field.width ?? 0
            fields.append(
                HeaderField(kind: kind, code: code, width: width, offset: isFixed ? offset : -1, position: position)
            )
            offset += isFixed ? width : field.largestWidth
        }
        let none = Slot(offset: 0, code: NumberCode(.integer()))
        self.name = layout.name
        self.direction = direction
        self.codec = codec
        self.fields = fields
        self.isFixed = isFixed
        self.length = offset
        self.constants = constants
        self.hasConstants = !constants.isEmpty
        self.customs = customs
        self.customLength = customLength
        self.type = slots[.type]
        self.serial = slots[.serial] ?? none
        self.status = slots[.status]
        let length = slots[.length] ?? none
        self.payloadLength = length
        self.headerLength = slots[.headerLength]
        self.longestAnnounced = longestAnnounced
        self.lengthBehindLength = offset - length.offset - length.code.width
        self.lengthCounts = layout.lengthCounts
        self.checksum = layout.checksum
        self.tail = layout.tail
        self.bodyEnd = layout.bodyEnd ?? []
        self.needsSearch = !isFixed || layout.bodyEnd?.isEmpty == false || codec != nil
        self.trailerLength =
            (layout.checksum?.width ?? 0) + (layout.tail == nil ? 0 : 4) + (layout.bodyEnd?.count ?? 0)
        self.statuses = StatusMap(layout, fieldHolds: header.number(of: .status)?.largest ?? .max)
        self.applicationTypes = layout.applicationTypes
        self.controlTypes = [layout.heartbeat?.type, layout.heartbeat?.answerType, layout.cancel?.type]
            .compactMap { $0 }
        if slots[.type] == nil {
            let serials = layout.heartbeat.map { $0.serials ?? $0.clientSerial...$0.clientSerial }
            self.impliedTypes = (layout.heartbeat?.type ?? 0, serials, layout.applicationTypes.lowerBound)
        } else {
            self.impliedTypes = nil
        }
        if case .flag(let value, let mask)? = layout.push?.mark, slots[.flags] != nil, direction == .response {
            self.pushFlag = (value & mask, mask)
            self.flags = slots[.flags]
        } else {
            self.pushFlag = nil
            self.flags = nil
        }
    }

    var hasStatus: Bool { self.status != nil }
    var hasType: Bool { self.impliedTypes == nil }
    /// Whether a damaged frame does not affect other frames.
    var resynchronises: Bool { !self.bodyEnd.isEmpty }
    /// Whether ``FrameSearch``, or a codec, decodes it.
    let needsSearch: Bool

    /// The largest payload that the length field can announce.
    var largestPayload: Int {
        let field = self.fields.first { $0.kind == .length }
        guard let field, field.width > 0 else { return Int(Int32.max) }
        let largest: Int =
            switch field.code.kind {
            case .big32, .little32: Int(UInt32.max)
            case .big, .little: field.width >= 4 ? Int(UInt32.max) : 1 << (8 * field.width) - 1
            case .decimal: (0..<min(field.width, 10)).reduce(1) { power, _ in power * 10 } - 1
            case .hexadecimal: 1 << (4 * min(field.width, 8)) - 1
            }
        let counted: Int =
            switch self.lengthCounts {
            case .payload: 0
            case .frame: self.length + self.trailerLength
            case .rest: (self.isFixed ? self.lengthBehindLength : self.length) + self.trailerLength
            }
        return max(0, min(largest - counted, Int(Int32.max)))
    }

    // MARK: Reading

    /// Reads the header that starts `bytes`; nil where more bytes are needed.
    func header(_ bytes: UnsafeRawBufferPointer) throws(FrameError) -> FrameHeader? {
        guard self.isFixed else { return try self.variableHeader(bytes) }
        guard bytes.count >= self.length else { return nil }
        if self.hasConstants { try self.checkConstants(bytes) }
        let (type, serial) = (self.type?.load(bytes), self.serial.load(bytes))
        var (length, status) = (self.payloadLength.load(bytes), UInt64(Status.ok.rawValue))
        if let slot = self.status { status = slot.load(bytes) }
        // One comparison for all of them: a number above 32 bits has one of the bits above.
        guard (type ?? 0) | serial | length | status <= UInt64(UInt32.max) else {
            throw self.illegalNumber(bytes)
        }
        let serialNumber = UInt32(truncatingIfNeeded: serial)
        let typeNumber = type.map { UInt32(truncatingIfNeeded: $0) } ?? self.impliedType(serialNumber)
        var headerLength = self.length
        if let field = self.headerLength {
            let announced = field.load(bytes)
            guard announced >= UInt64(self.length), announced <= UInt64(self.longestAnnounced) else {
                throw .headerLength(
                    announced,
                    accepted: self.length...self.longestAnnounced,
                    type: typeNumber,
                    serial: serialNumber
                )
            }
            headerLength = Int(announced)
        }
        if self.lengthCounts != .payload {
            let counted =
                self.lengthCounts == .frame ? headerLength : self.lengthBehindLength + headerLength - self.length
            let least = counted + self.trailerLength
            guard length >= UInt64(least) else {
                throw .frameTooShort(
                    length: Int(length),
                    least: least,
                    counts: self.lengthCounts,
                    type: typeNumber,
                    serial: serialNumber
                )
            }
            length -= UInt64(least)
        }
        return FrameHeader(
            type: typeNumber,
            serial: serialNumber,
            status: self.status == nil ? .ok : self.statuses.decoded(UInt32(truncatingIfNeeded: status)),
            length: UInt32(truncatingIfNeeded: length),
            headerLength: headerLength
        )
    }

    private func checkConstants(_ bytes: UnsafeRawBufferPointer) throws(FrameError) {
        for field in self.fields where field.kind == .constant {
            for index in 0..<field.width where bytes[field.offset + index] != self.constants[field.position + index] {
                throw .wrongConstant(
                    expected: Array(self.constants[field.position..<field.position + field.width]),
                    received: Array(bytes[field.offset..<field.offset + field.width]),
                    offset: field.offset
                )
            }
        }
    }

    /// The first number of a fixed header that is malformed.
    private func illegalNumber(_ bytes: UnsafeRawBufferPointer) -> FrameError {
        let field =
            self.fields.first { field in
                switch field.kind {
                case .type, .serial, .status, .length:
                    field.code.load(bytes, at: field.offset) > UInt64(UInt32.max)
                case .headerLength, .flags, .constant, .custom:
                    false
                }
            } ?? self.fields[0]
        return .illegalNumber(field, Array(bytes[field.offset..<field.offset + field.width]), offset: field.offset)
    }

    func impliedType(_ serial: UInt32) -> UInt32 {
        guard let implied = self.impliedTypes else { return 0 }
        return implied.serials?.contains(serial) == true ? implied.heartbeat : implied.other
    }

    /// Whether a header with this type may follow a frame with a wrong checksum.
    func isPlausible(_ type: UInt32) -> Bool {
        type <= self.applicationTypes.upperBound || self.controlTypes.contains(type)
    }

    /// Whether the header that starts `bytes` is marked as a push's by a flag.
    func isMarkedAsPush(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard let flag = self.pushFlag, let slot = self.flags else { return false }
        if self.isFixed { return slot.load(bytes) & UInt64(flag.mask) == UInt64(flag.value) }
        var cursor = FieldCursor(self, bytes)
        while let field = cursor.next() {
            guard field.kind == .flags else { continue }
            return UInt64(cursor.number) & UInt64(flag.mask) == UInt64(flag.value)
        }
        return false
    }

    /// Checks the part after a payload that ends at `end`; `bytes` contain the whole frame.
    func check(
        _ header: FrameHeader,
        _ payload: UnsafeRawBufferPointer,
        in bytes: UnsafeRawBufferPointer,
        end: Int
    ) throws(FrameError) -> FrameDecoder.ChecksumMismatch? {
        var end = end
        let checksumOffset = end
        if let checksum = self.checksum { end += checksum.width }
        let tailOffset = end
        if self.tail != nil { end += 4 }
        for index in self.bodyEnd.indices where bytes[end + index] != self.bodyEnd[index] {
            throw .wrongEnd(
                expected: self.bodyEnd,
                received: Array(bytes[end..<end + self.bodyEnd.count]),
                header
            )
        }
        if let order = self.tail {
            let tail = NumberCode(.integer(order)).load(bytes, at: tailOffset)
            guard tail == UInt64(header.type) else {
                throw .wrongTail(UInt32(truncatingIfNeeded: tail), type: header.type, serial: header.serial)
            }
        }
        guard let checksum = self.checksum else { return nil }
        let computed = UInt64(checksum.algorithm.checksum(payload))
        let received = NumberCode(.integer(bytes: checksum.width, checksum.order)).load(bytes, at: checksumOffset)
        return received == computed ? nil : .init(received: received, computed: computed)
    }

    /// The custom fields of a header that starts `bytes`.
    func customFields(in bytes: UnsafeRawBufferPointer) -> [UInt8]? {
        guard self.customLength > 0 else { return nil }
        return Array(unsafeUninitializedCapacity: self.customLength) { target, count in
            let target = UnsafeMutableRawBufferPointer(target)
            target.initializeMemory(as: UInt8.self, repeating: 0)
            count = self.customLength
            var cursor = FieldCursor(self, bytes)
            while let field = cursor.next() {
                guard field.kind == .custom else { continue }
                target[field.position..<field.position + field.width]
                    .copyBytes(from: bytes[cursor.start..<cursor.start + field.width])
            }
        }
    }

    // MARK: Writing

    /// The length of a written header in bytes.
    func encodedLength(of header: FrameHeader) -> Int {
        guard !self.isFixed else { return self.length }
        let length = self.announcedLength(header)
        return self.fields.reduce(0) { $0 + self.width(of: $1, header, length) }
    }

    private func width(of field: HeaderField, _ header: FrameHeader, _ length: UInt32) -> Int {
        if field.width > 0 { return field.width }
        return field.code.width(of: self.value(of: field, header, length))
    }

    /// The number to write in a field.
    private func value(of field: HeaderField, _ header: FrameHeader, _ length: UInt32, isPush: Bool = false) -> UInt32 {
        switch field.kind {
        case .type: return header.type
        case .serial: return header.serial
        case .status: return self.statuses.encoded(header.status)
        case .length: return length
        case .headerLength: return UInt32(self.length)
        case .flags:
            let value = UInt32(field.position)
            guard isPush, let flag = self.pushFlag else { return value }
            return value & ~flag.mask | flag.value
        case .constant, .custom: return 0
        }
    }

    /// The number to write in the length field.
    private func announcedLength(_ header: FrameHeader) -> UInt32 {
        let counted: Int
        switch self.lengthCounts {
        case .payload:
            return header.length
        case .frame:
            // The length itself has a fixed width then.
            counted = self.isFixed ? self.length : self.fields.reduce(0) { $0 + self.width(of: $1, header, 0) }
        case .rest:
            guard !self.isFixed, let index = self.fields.firstIndex(where: { $0.kind == .length }) else {
                counted = self.lengthBehindLength
                break
            }
            counted = self.fields[(index + 1)...].reduce(0) { $0 + self.width(of: $1, header, 0) }
        }
        return header.length &+ UInt32(truncatingIfNeeded: counted + self.trailerLength)
    }

    /// Writes the header over the first bytes, of which there must be ``encodedLength(of:)``.
    func write(_ header: FrameHeader, custom: [UInt8]?, isPush: Bool, to bytes: UnsafeMutableRawBufferPointer) {
        let length = self.announcedLength(header)
        var offset = 0
        for field in self.fields {
            let width: Int
            switch field.kind {
            case .constant:
                width = field.width
                for index in 0..<width { bytes[offset + index] = self.constants[field.position + index] }
            case .custom:
                width = field.width
                let target = UnsafeMutableRawBufferPointer(rebasing: bytes[offset..<offset + width])
                if let custom, custom.count >= field.position + width {
                    target.copyBytes(from: custom[field.position..<field.position + width])
                } else {
                    target.initializeMemory(as: UInt8.self, repeating: 0)
                }
            case .type, .serial, .status, .length, .headerLength, .flags:
                let value = self.value(of: field, header, length, isPush: isPush)
                width = field.width > 0 ? field.width : field.code.width(of: value)
                field.code.store(value, bytes, at: offset, width: width)
            }
            offset += width
        }
    }

    /// Writes the part after the payload over the first ``trailerLength`` bytes, which must exist.
    func writeTrailer(type: UInt32, _ payload: UnsafeRawBufferPointer, to bytes: UnsafeMutableRawBufferPointer) {
        var offset = 0
        if let checksum = self.checksum {
            NumberCode(.integer(bytes: checksum.width, checksum.order))
                .store(checksum.algorithm.checksum(payload), bytes, at: 0, width: checksum.width)
            offset = checksum.width
        }
        if let order = self.tail {
            NumberCode(.integer(order)).store(type, bytes, at: offset, width: 4)
            offset += 4
        }
        for byte in self.bodyEnd {
            bytes[offset] = byte
            offset += 1
        }
    }
}
