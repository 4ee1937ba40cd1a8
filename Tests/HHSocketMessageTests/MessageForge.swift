// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import TestSupport

@testable import HHSocketMessage

/// Generates random messages as bytes: fields in any order, repeated, packed or not, and some unknown ones.
struct MessageForge {
    var random: SeededGenerator
    /// The greatest depth of nested messages.
    var depth = 4
    /// The numbers of fields of closed enumerations, by the name of the field, if not all declared ones.
    var closedEnums: [String: [Int32]] = [:]
    var addsUnknownFields = true

    init(seed: UInt64) {
        self.random = SeededGenerator(seed: seed)
    }

    mutating func message(_ descriptor: MessageDescriptor) -> [UInt8] {
        self.message(descriptor, depth: 1)
    }

    private mutating func message(_ descriptor: MessageDescriptor, depth: Int) -> [UInt8] {
        var pieces: [[UInt8]] = []
        for field in descriptor.fields {
            let isInner = field.kind == .message
            switch field.presence {
            case .required:
                pieces.append(self.field(field, of: descriptor, depth))
            case .explicit where field.kind == .message && descriptor.isMapEntry:
                // The default message for a missing value may lack required fields.
                pieces.append(self.field(field, of: descriptor, depth))
            case .implicit, .explicit, .oneof:
                let atMost = isInner && depth >= self.depth ? 0 : self.chance(4) ? 2 : 1
                for _ in 0..<Int.random(in: 0...atMost, using: &self.random) {
                    pieces.append(self.field(field, of: descriptor, depth))
                }
            case .repeated, .packed:
                let atMost = isInner && depth >= self.depth ? 0 : 4
                for _ in 0..<Int.random(in: 0...atMost, using: &self.random) {
                    pieces.append(self.repeatedField(field, of: descriptor, depth))
                }
            }
        }
        if self.addsUnknownFields {
            for _ in 0..<(self.chance(3) ? Int.random(in: 1...3, using: &self.random) : 0) {
                pieces.append(self.unknownField(of: descriptor))
            }
        }
        return pieces.shuffled(using: &self.random).flatMap { $0 }
    }

    private mutating func chance(_ oneIn: Int) -> Bool { Int.random(in: 0..<oneIn, using: &self.random) == 0 }

    private mutating func field(_ field: FieldDescriptor, of descriptor: MessageDescriptor, _ depth: Int) -> [UInt8] {
        let tag = Self.tag(field.number, field.kind.wireType)
        // Unless it is required. Entries of maps are excluded.
        let mayBeUnknown = field.presence != .required && !descriptor.isMapEntry
        if mayBeUnknown, self.numbers(of: field) != nil, self.chance(6) { return tag + Self.varint(99) }
        if field.isGroup, let message = field.message {
            return Self.tag(field.number, .startGroup) + self.message(message, depth: depth + 1)
                + Self.tag(field.number, .endGroup)
        }
        return tag + self.value(field, of: descriptor, depth)
    }

    /// The numbers of a closed enumeration; nil for other fields.
    private func numbers(of field: FieldDescriptor) -> [Int32]? {
        guard let type = field.enumeration, type.isClosed else { return nil }
        return self.closedEnums[field.name] ?? type.values.map(\.number)
    }

    private mutating func repeatedField(
        _ field: FieldDescriptor,
        of descriptor: MessageDescriptor,
        _ depth: Int
    ) -> [UInt8] {
        guard field.kind.isPackable, self.chance(2) else { return self.field(field, of: descriptor, depth) }
        var values: [UInt8] = []
        for _ in 0..<Int.random(in: 0...6, using: &self.random) {
            values += self.value(field, of: descriptor, depth)
        }
        return Self.tag(field.number, .lengthDelimited) + Self.varint(UInt64(values.count)) + values
    }

    private mutating func value(_ field: FieldDescriptor, of descriptor: MessageDescriptor, _ depth: Int) -> [UInt8] {
        switch field.kind {
        case .bool:
            return Self.varint(Bool.random(using: &self.random) ? 1 : 0)
        case .enum:
            let known = self.numbers(of: field) ?? [0, 1, 2, -5, 7, .max, .min]
            let number = known.randomElement(using: &self.random) ?? 0
            return Self.varint(UInt64(bitPattern: Int64(number)))
        case .int32:
            return Self.varint(UInt64(bitPattern: Int64(Int32(truncatingIfNeeded: self.number()))))
        case .uint32, .sint32:
            return Self.varint(UInt64(UInt32(truncatingIfNeeded: self.number())))
        case .int64, .uint64, .sint64:
            return Self.varint(self.number())
        case .fixed32, .sfixed32:
            return Self.little(UInt32(truncatingIfNeeded: self.number()))
        case .fixed64, .sfixed64:
            return Self.little(self.number())
        case .float:
            let numbers: [Float] = [0, -0.0, 1.5, .infinity, -.infinity, .leastNonzeroMagnitude, 3.25e7]
            return Self.little((numbers.randomElement(using: &self.random) ?? 0).bitPattern)
        case .double:
            let numbers: [Double] = [0, -0.0, -1.5, .infinity, -.infinity, .leastNonzeroMagnitude, 1e300]
            return Self.little((numbers.randomElement(using: &self.random) ?? 0).bitPattern)
        case .string:
            return Self.delimited(self.text())
        case .bytes:
            return Self.delimited(self.random.bytes(Int.random(in: 0...20, using: &self.random)))
        case .message:
            return Self.delimited(field.message.map { self.message($0, depth: depth + 1) } ?? [])
        }
    }

    /// Returns a number of a random length in bits.
    private mutating func number() -> UInt64 {
        self.random.next() >> UInt64.random(in: 0...63, using: &self.random)
    }

    private mutating func text() -> [UInt8] {
        let texts = [
            "", "a", "hello", "NUL \0 within", "exactly fifteen", "sixteen letters!", "grün, 東京, 😀, \u{10FFFF}",
        ]
        let text = texts.randomElement(using: &self.random) ?? ""
        return Array((self.chance(8) ? String(repeating: text, count: 40) : text).utf8)
    }

    /// Returns a field with a number of any size; a message may not declare the lowest ones either.
    private mutating func unknownField(of descriptor: MessageDescriptor) -> [UInt8] {
        let known = Set(descriptor.fields.map(\.number))
        var number: UInt32
        repeat {
            let largest: UInt32 = self.chance(2) ? 40 : 536_870_911
            number = UInt32.random(in: 1...largest, using: &self.random)
        } while known.contains(number)
        switch Int.random(in: 0...4, using: &self.random) {
        case 0: return Self.tag(number, .varint) + Self.varint(self.number())
        case 4:
            return Self.tag(number, .startGroup) + Self.tag(1, .varint) + Self.varint(self.number())
                + Self.tag(number, .endGroup)
        case 1: return Self.tag(number, .fixed32) + Self.little(UInt32(truncatingIfNeeded: self.number()))
        case 2: return Self.tag(number, .fixed64) + Self.little(self.number())
        default:
            return Self.tag(number, .lengthDelimited)
                + Self.delimited(self.random.bytes(Int.random(in: 0...200, using: &self.random)))
        }
    }

    static func tag(_ number: UInt32, _ type: WireType) -> [UInt8] {
        Self.varint(UInt64(number) << 3 | UInt64(type.rawValue))
    }

    static func varint(_ value: UInt64) -> [UInt8] {
        var bytes: [UInt8] = []
        var rest = value
        while rest >= 0x80 {
            bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        return bytes + [UInt8(rest)]
    }

    static func delimited(_ bytes: [UInt8]) -> [UInt8] { Self.varint(UInt64(bytes.count)) + bytes }

    private static func little<Number: FixedWidthInteger>(_ number: Number) -> [UInt8] {
        withUnsafeBytes(of: number.littleEndian) { Array($0) }
    }
}
