// SPDX-License-Identifier: Apache-2.0
import InstrumentedHHSocketLink

/// The fuzzer's bytes, from which decisions are drawn: from their end, so that a recorded stream is good input as
/// it is.
struct Input {
    private(set) var rest: ArraySlice<UInt8>

    init(_ bytes: [UInt8]) {
        self.rest = bytes[...]
    }

    var isEmpty: Bool { self.rest.isEmpty }

    /// Returns the next byte; 0 once there are none left.
    mutating func byte() -> UInt8 { self.rest.popLast() ?? 0 }

    /// Returns a number, often one with a special meaning.
    mutating func word() -> UInt32 {
        let kind = self.byte()
        switch kind {
        case 0..<200: return UInt32(kind)
        case 200..<220: return UInt32.max - UInt32(kind - 200)
        case 220..<230: return 0x1FFF_FFFB + UInt32(kind - 220)
        default: return (0..<4).reduce(0) { word, _ in word << 8 | UInt32(self.byte()) }
        }
    }

    mutating func bool() -> Bool { self.byte() & 1 == 1 }

    mutating func choice<T>(_ options: [T]) -> T { options[Int(self.byte()) % options.count] }

    mutating func bytes(_ count: Int) -> [UInt8] { (0..<count).map { _ in self.byte() } }

    mutating func range() -> ClosedRange<UInt32> {
        let first = self.word()
        let second = self.word()
        return min(first, second)...max(first, second)
    }

    /// A preset other than the standard format, or a layout from the input, which may break rules.
    mutating func format() -> WireFormat? {
        switch self.byte() % 10 {
        case 0: return .tgcd
        case 1: return .plain
        case 2: return .mars
        case 3: return try? .tgcd(sessionIDLength: Int(self.byte()))
        case 8, 9: return .separated
        default: break
        }
        let layout = self.layout()
        do throws(WireFormatError) {
            return try WireFormat(layout)
        } catch {
            require(!"\(error)".isEmpty, "a refusal without a reason")
            return nil
        }
    }

    private mutating func layout() -> WireFormat.Layout {
        let order = self.order()
        var layout = WireFormat.Layout(name: "fuzz", request: self.header(order), response: self.header(order))
        let flags = self.byte()
        if flags & 1 != 0 { layout.lengthCounts = self.choice([.frame, .rest]) }
        if flags & 2 != 0 {
            layout.checksum = .init(
                self.choice(WireFormat.Checksum.Algorithm.allCases),
                width: self.choice([4, 8, 4, 8, 4, 8, 2, 16]),
                self.order()
            )
        }
        if flags & 4 != 0 { layout.tail = self.order() }
        if flags & 8 != 0 { layout.applicationTypes = self.range() }
        if flags & 16 != 0 { layout.requestSerials = self.range() }
        if flags & 32 != 0 { layout.okStatus = self.word() }
        if flags & 64 != 0 {
            layout.heartbeat = .init(
                type: self.word(),
                pingedBy: self.choice([.client, .server, .both]),
                clientSerial: self.word(),
                serverSerial: self.word(),
                serials: self.bool() ? self.range() : nil,
                pingStatus: Status(rawValue: self.word())
            )
        }
        if flags & 128 != 0 {
            switch self.byte() % 4 {
            case 0: layout.push = .init(serials: self.range())
            case 1: layout.push = .init(types: self.range())
            case 2: layout.push = .init(flag: self.word(), mask: self.word())
            default: layout.push = .init(serial: self.word())
            }
            layout.cancel = .init(type: self.word())
        }
        let more = self.byte()
        if more & 1 != 0 { layout.bodyEnd = self.bytes(Int(self.byte() % 5)) }
        if more & 2 != 0 { layout.heartbeat?.answerType = self.word() }
        if more & 4 != 0 {
            for _ in 0..<self.byte() % 4 { layout.statuses[self.word()] = Status(rawValue: self.word()) }
        }
        return layout
    }

    private mutating func order() -> WireFormat.ByteOrder { self.bool() ? .little : .big }

    /// The fields that a header requires, among others and in any order.
    private mutating func header(_ order: WireFormat.ByteOrder) -> [WireFormat.Field] {
        var fields: [WireFormat.Field] = [.type(order), .serial(order), .length(order)]
        if self.byte() % 4 == 1 {
            fields = [.serial(self.number()), .length(self.number())]
            if self.byte() % 4 != 0 { fields.append(.type(self.number())) }
            if self.bool() { fields.append(.flags(self.word(), bytes: self.choice([1, 2, 4, 8, 5]))) }
        }
        if self.byte() % 4 != 0 {
            fields.append(.status(self.byte() % 4 == 0 ? self.number() : .integer(self.order())))
        }
        for number in 0..<self.byte() % 4 {
            switch self.byte() % 8 {
            case 0...2: fields.append(.constant(self.bytes(Int(self.byte() % 8))))
            case 3...5: fields.append(.custom(self.choice(["a", "b", "c\(number)"]), bytes: Int(self.byte() % 12)))
            case 6: fields.append(.headerLength(upTo: Int(self.byte()), self.order()))
            default: fields.append(.custom("wide\(number)", bytes: Int(self.word())))
            }
        }
        for index in fields.indices.dropLast() {
            fields.swapAt(index, index + Int(self.byte()) % (fields.count - index))
        }
        // A number without a fixed number of digits must be followed by a separator.
        let separator = self.choice([[0x2D], [0x0D, 0x0A], [0x20]] as [[UInt8]])
        return fields.flatMap { $0.width == nil ? [$0, .constant(separator)] : [$0] }
    }

    private mutating func number() -> WireFormat.Number {
        switch self.byte() % 8 {
        case 0: .decimal
        case 1: .hexadecimal
        case 2: .decimal(digits: Int(self.byte() % 24))
        case 3: .hexadecimal(digits: Int(self.byte() % 24))
        default: .integer(bytes: self.choice([1, 2, 3, 4, 8, 8, 2, 5]), self.order())
        }
    }

    /// The sizes of the pieces into which the rest is cut, used in turn.
    mutating func pieceSizes() -> [Int] {
        let count = Int(self.byte() % 16)
        return (0..<count).map { _ in
            let size = Int(self.byte())
            return size < 128 ? size : (size - 127) * 16
        }
    }
}
