/// The positions of all fields in the frames of one direction of a ``WireFormat``: the layout, ready for use.
///
/// Every offset lies within `length` bytes, because the layout was checked; callers guarantee
/// that `length` bytes are available.
@usableFromInline
final class HeaderPlan: Sendable {
    struct Word: Sendable {
        var offset: Int
        var order: WireFormat.ByteOrder

        func load(_ bytes: UnsafeRawBufferPointer) -> UInt32 { bytes.word(at: self.offset, self.order) }

        func store(_ word: UInt32, _ bytes: UnsafeMutableRawBufferPointer) {
            bytes.store(word, at: self.offset, self.order)
        }
    }

    struct Custom: Sendable {
        var name: String
        var offset: Int
        var width: Int
        /// The index of its bytes in ``Frame/customFields``.
        var place: Int
    }

    struct Constant: Sendable {
        var offset: Int
        var bytes: [UInt8]
    }

    /// The header's length in bytes, as it is written.
    let length: Int
    /// The length of the trailer behind the payload, in bytes.
    let trailerLength: Int
    private let type: Word
    private let serial: Word
    private let status: Word?
    private let payloadLength: Word
    private let headerLength: (word: Word, upTo: Int)?
    private let constants: [Constant]
    let customs: [Custom]
    /// The length of ``Frame/customFields``.
    let customLength: Int
    private let lengthCounts: WireFormat.LengthScope
    private let checksum: WireFormat.Checksum?
    private let tail: WireFormat.ByteOrder?
    private let okStatus: UInt32
    /// The types that may follow a wrong checksum.
    private let applicationTypes: ClosedRange<UInt32>
    private let controlTypes: [UInt32]

    init(_ layout: WireFormat.Layout, _ direction: FrameDirection) {
        var type = Word(offset: 0, order: .big)
        var serial = type
        var payloadLength = type
        var status: Word?
        var headerLength: (word: Word, upTo: Int)?
        var constants: [Constant] = []
        var customs: [Custom] = []
        var offset = 0
        var place = 0
        for field in layout.header(direction) {
            switch field.kind {
            case .word(.type, let order): type = Word(offset: offset, order: order)
            case .word(.serial, let order): serial = Word(offset: offset, order: order)
            case .word(.status, let order): status = Word(offset: offset, order: order)
            case .word(.length, let order): payloadLength = Word(offset: offset, order: order)
            case .headerLength(let upTo, let order): headerLength = (Word(offset: offset, order: order), upTo)
            case .constant(let bytes): constants.append(Constant(offset: offset, bytes: bytes))
            case .custom(let name, let width):
                customs.append(Custom(name: name, offset: offset, width: width, place: place))
                place += width
            }
            offset += field.width
        }
        self.length = offset
        self.type = type
        self.serial = serial
        self.status = status
        self.payloadLength = payloadLength
        self.headerLength = headerLength
        self.constants = constants
        self.customs = customs
        self.customLength = place
        self.lengthCounts = layout.lengthCounts
        self.checksum = layout.checksum
        self.tail = layout.tail
        self.okStatus = layout.okStatus
        self.trailerLength = (layout.checksum?.width ?? 0) + (layout.tail == nil ? 0 : 4)
        self.applicationTypes = layout.applicationTypes
        self.controlTypes = [layout.heartbeat?.type, layout.cancel?.type].compactMap { $0 }
    }

    var hasStatus: Bool { self.status != nil }

    // MARK: Reading

    /// Reads a header from the first ``length`` bytes, which must exist.
    func header(_ bytes: UnsafeRawBufferPointer) throws(FrameError) -> FrameHeader {
        for constant in self.constants {
            let range = constant.offset..<constant.offset + constant.bytes.count
            guard bytes[range].elementsEqual(constant.bytes) else {
                throw .wrongConstant(expected: constant.bytes, received: Array(bytes[range]), offset: constant.offset)
            }
        }
        let type = self.type.load(bytes)
        let serial = self.serial.load(bytes)
        var headerLength = self.length
        if let field = self.headerLength {
            let announced = field.word.load(bytes)
            guard let length = Int(exactly: announced), (self.length...field.upTo).contains(length) else {
                throw .headerLength(announced, accepted: self.length...field.upTo, type: type, serial: serial)
            }
            headerLength = length
        }
        var length = self.payloadLength.load(bytes)
        if self.lengthCounts == .frame {
            let overhead = UInt32(headerLength + self.trailerLength)
            guard length >= overhead else {
                throw .frameTooShort(length: Int(length), least: Int(overhead), type: type, serial: serial)
            }
            length -= overhead
        }
        return FrameHeader(
            type: type,
            serial: serial,
            status: self.status.map { self.decoded($0.load(bytes)) } ?? .ok,
            length: length,
            headerLength: headerLength
        )
    }

    /// Whether a header may follow a frame with a wrong checksum, as far as its type tells.
    func isPlausible(_ type: UInt32) -> Bool {
        type <= self.applicationTypes.upperBound || self.controlTypes.contains(type)
    }

    /// Success is ``Status/ok`` in the program. What is 200 on the wire takes the number that became free, so that no
    /// two statuses become one.
    private func decoded(_ status: UInt32) -> Status {
        if status == self.okStatus { return .ok }
        return Status(rawValue: status == Status.ok.rawValue ? self.okStatus : status)
    }

    private func encoded(_ status: Status) -> UInt32 { self.decoded(status.rawValue).rawValue }

    /// Checks what comes after a payload that ends at `end`; `bytes` wholly contain the frame.
    func check(
        _ header: FrameHeader,
        _ payload: UnsafeRawBufferPointer,
        in bytes: UnsafeRawBufferPointer,
        end: Int
    ) throws(FrameError) -> FrameDecoder.ChecksumMismatch? {
        if let order = self.tail {
            let tail = bytes.word(at: end + (self.checksum?.width ?? 0), order)
            guard tail == header.type else {
                throw .wrongTail(tail, type: header.type, serial: header.serial)
            }
        }
        guard let checksum = self.checksum else { return nil }
        let computed = UInt64(checksum.algorithm.checksum(payload))
        let received: UInt64 =
            if checksum.width == 4 {
                UInt64(bytes.word(at: end, checksum.order))
            } else {
                switch checksum.order {
                case .big: UInt64(bytes.word(at: end, .big)) << 32 | UInt64(bytes.word(at: end + 4, .big))
                case .little: UInt64(bytes.word(at: end + 4, .little)) << 32 | UInt64(bytes.word(at: end, .little))
                }
            }
        return received == computed ? nil : .init(received: received, computed: computed)
    }

    /// The custom fields of a header that starts `bytes`.
    func customFields(in bytes: UnsafeRawBufferPointer) -> [UInt8]? {
        guard self.customLength > 0 else { return nil }
        return Array(unsafeUninitializedCapacity: self.customLength) { target, count in
            for custom in self.customs {
                UnsafeMutableRawBufferPointer(target)[custom.place..<custom.place + custom.width]
                    .copyBytes(from: bytes[custom.offset..<custom.offset + custom.width])
            }
            count = self.customLength
        }
    }

    // MARK: Writing

    /// Writes the header over the first ``length`` bytes, which must exist.
    func write(_ header: FrameHeader, custom: [UInt8]?, to bytes: UnsafeMutableRawBufferPointer) {
        self.type.store(header.type, bytes)
        self.serial.store(header.serial, bytes)
        self.status?.store(self.encoded(header.status), bytes)
        self.headerLength?.word.store(UInt32(self.length), bytes)
        self.payloadLength.store(
            self.lengthCounts == .payload
                ? header.length : header.length &+ UInt32(self.length + self.trailerLength),
            bytes
        )
        for constant in self.constants {
            bytes[constant.offset..<constant.offset + constant.bytes.count].copyBytes(from: constant.bytes)
        }
        for field in self.customs {
            let target = UnsafeMutableRawBufferPointer(rebasing: bytes[field.offset..<field.offset + field.width])
            if let custom, custom.count >= field.place + field.width {
                target.copyBytes(from: custom[field.place..<field.place + field.width])
            } else {
                target.initializeMemory(as: UInt8.self, repeating: 0)
            }
        }
    }

    /// Writes what comes after the payload over the first ``trailerLength`` bytes, which must exist.
    func writeTrailer(type: UInt32, _ payload: UnsafeRawBufferPointer, to bytes: UnsafeMutableRawBufferPointer) {
        var offset = 0
        if let checksum = self.checksum {
            let word = checksum.algorithm.checksum(payload)
            if checksum.width == 8 {
                bytes.store(0, at: checksum.order == .big ? 0 : 4, .big)
            }
            bytes.store(word, at: checksum.width == 8 && checksum.order == .big ? 4 : 0, checksum.order)
            offset = checksum.width
        }
        if let order = self.tail { bytes.store(type, at: offset, order) }
    }

    // MARK: Custom fields by name

    func customFields(
        _ values: [String: [UInt8]],
        over base: [UInt8]?,
        format: String
    ) throws(SocketError) -> [UInt8] {
        var fields = self.zeros(over: base)
        for (name, value) in values {
            guard let custom = self.customs.first(where: { $0.name == name }) else {
                let names = self.customs.map(\.name).joined(separator: ", ")
                throw SocketError(
                    .invalidArgument,
                    message: """
                        the wire format \(format) has no header field \(name); \
                        \(names.isEmpty ? "it has none to fill in" : "there are: \(names)")
                        """
                )
            }
            guard value.count == custom.width else {
                throw SocketError(
                    .invalidArgument,
                    message: """
                        the header field \(name) of the wire format \(format) is \(custom.width) bytes wide; \
                        \(value.count) were given
                        """
                )
            }
            fields.replaceSubrange(custom.place..<custom.place + custom.width, with: value)
        }
        return fields
    }

    /// The fields that `request`, packed by `plan`, has in common with this header, over `base`.
    func customFields(echoing request: [UInt8], of plan: HeaderPlan, over base: [UInt8]?) -> [UInt8]? {
        guard self.customLength > 0, request.count == plan.customLength else { return base }
        var fields = self.zeros(over: base)
        for custom in self.customs {
            guard let source = plan.customs.first(where: { $0.name == custom.name }) else { continue }
            fields.replaceSubrange(
                custom.place..<custom.place + custom.width,
                with: request[source.place..<source.place + source.width]
            )
        }
        return fields
    }

    func values(of fields: [UInt8]?) -> [String: [UInt8]] {
        guard self.customLength > 0 else { return [:] }
        let fields = self.zeros(over: fields)
        return Dictionary(
            uniqueKeysWithValues: self.customs.map { ($0.name, Array(fields[$0.place..<$0.place + $0.width])) }
        )
    }

    private func zeros(over base: [UInt8]?) -> [UInt8] {
        if let base, base.count == self.customLength { return base }
        return [UInt8](repeating: 0, count: self.customLength)
    }
}

extension UnsafeRawBufferPointer {
    fileprivate func word(at offset: Int, _ order: WireFormat.ByteOrder) -> UInt32 {
        let word = self.loadUnaligned(fromByteOffset: offset, as: UInt32.self)
        return order == .big ? UInt32(bigEndian: word) : UInt32(littleEndian: word)
    }
}

extension UnsafeMutableRawBufferPointer {
    fileprivate func store(_ word: UInt32, at offset: Int, _ order: WireFormat.ByteOrder) {
        self.storeBytes(
            of: order == .big ? word.bigEndian : word.littleEndian,
            toByteOffset: offset,
            as: UInt32.self
        )
    }
}
