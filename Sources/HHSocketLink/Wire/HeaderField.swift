// SPDX-License-Identifier: Apache-2.0
/// A number in the headers of one direction, ready to be read and written.
///
/// Trivial, so that a header costs no reference.
struct NumberCode: Sendable {
    enum Kind: UInt8, Sendable {
        case big32, little32
        /// An integer of another width.
        case big, little
        case decimal, hexadecimal
    }

    let kind: Kind
    /// The width in bytes; 0 if it is that of the number.
    let width: Int

    /// A value above any number of 32 bits, which ``load(_:at:)`` returns for invalid digits.
    static let illegal = UInt64.max

    init(_ number: WireFormat.Number) {
        switch number.kind {
        case .integer(4, let order):
            self.kind = order == .big ? .big32 : .little32
            self.width = 4
        case .integer(let bytes, let order):
            self.kind = order == .big ? .big : .little
            self.width = bytes
        case .digits(let radix, let count):
            self.kind = radix == .decimal ? .decimal : .hexadecimal
            self.width = count ?? 0
        }
    }

    private var radix: WireFormat.Number.Radix { self.kind == .decimal ? .decimal : .hexadecimal }

    var isDigits: Bool { self.kind == .decimal || self.kind == .hexadecimal }

    /// The number at `offset`, whose whole width must be available; over 32 bits if it is invalid. Not for numbers of
    /// variable width.
    @inline(__always)
    func load(_ bytes: UnsafeRawBufferPointer, at offset: Int) -> UInt64 {
        switch self.kind {
        case .big32:
            return UInt64(UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self)))
        case .little32:
            return UInt64(UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self)))
        default:
            return self.loadSlowly(bytes, at: offset)
        }
    }

    private func loadSlowly(_ bytes: UnsafeRawBufferPointer, at offset: Int) -> UInt64 {
        var value: UInt64 = 0
        switch self.kind {
        case .big, .big32:
            for index in offset..<offset + self.width { value = value << 8 | UInt64(bytes[index]) }
        case .little, .little32:
            for index in (offset..<offset + self.width).reversed() { value = value << 8 | UInt64(bytes[index]) }
        case .decimal, .hexadecimal:
            let radix = self.radix
            for index in offset..<offset + self.width {
                guard let digit = radix.digit(bytes[index]) else { return Self.illegal }
                // A number that is too large stays too large.
                value = min(value * radix.value + UInt64(digit), 1 << 40)
            }
        }
        return value
    }

    /// The result of reading digits until another character.
    enum Digits {
        /// The bytes end first.
        case incomplete
        /// There is no digit, or the number is too large.
        case illegal(end: Int)
        case number(UInt32, end: Int)
    }

    /// Reads the digits that begin at `offset`.
    @inline(__always)
    func digits(_ bytes: UnsafeRawBufferPointer, at offset: Int) -> Digits {
        self.kind == .decimal
            ? Self.digits(bytes, at: offset, radix: 10) { $0 &- UInt8(ascii: "0") }
            : Self.digits(bytes, at: offset, radix: 16) { WireFormat.Number.Radix.hexadecimal.digit($0) ?? .max }
    }

    /// - Parameter value: The value of a digit; the radix or more if it is not a digit.
    @inline(__always)
    private static func digits(
        _ bytes: UnsafeRawBufferPointer,
        at offset: Int,
        radix: UInt64,
        _ value: (UInt8) -> UInt8
    ) -> Digits {
        var number: UInt64 = 0
        var index = offset
        while index < bytes.count {
            let digit = UInt64(value(bytes[index]))
            guard digit < radix else {
                return index == offset
                    ? .illegal(end: index + 1) : .number(UInt32(truncatingIfNeeded: number), end: index)
            }
            number = number * radix + digit
            index += 1
            guard number <= UInt64(UInt32.max) else { return .illegal(end: index) }
        }
        return .incomplete
    }

    /// The width in bytes of the field that holds this number.
    func width(of value: UInt32) -> Int {
        if self.width > 0 { return self.width }
        var (count, rest) = (1, UInt64(value))
        while rest >= self.radix.value {
            rest /= self.radix.value
            count += 1
        }
        return count
    }

    /// Writes a number in a field that is `width` bytes wide. A number that does not fit is truncated.
    func store(_ value: UInt32, _ bytes: UnsafeMutableRawBufferPointer, at offset: Int, width: Int) {
        switch self.kind {
        case .big32:
            bytes.storeBytes(of: value.bigEndian, toByteOffset: offset, as: UInt32.self)
        case .little32:
            bytes.storeBytes(of: value.littleEndian, toByteOffset: offset, as: UInt32.self)
        case .big, .little:
            var rest = UInt64(value)
            for index in 0..<width {
                bytes[self.kind == .little ? offset + index : offset + width - 1 - index] = UInt8(
                    truncatingIfNeeded: rest
                )
                rest >>= 8
            }
        case .decimal, .hexadecimal:
            var rest = UInt64(value)
            for index in (offset..<offset + width).reversed() {
                let digit = UInt8(rest % self.radix.value)
                bytes[index] = digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") + digit - 10
                rest /= self.radix.value
            }
        }
    }
}

/// A field of the headers of one direction.
///
/// Trivial, so that a header costs no reference.
struct HeaderField: Sendable {
    enum Kind: UInt8, Sendable {
        case type, serial, status, length, headerLength, flags, constant, custom
    }

    let kind: Kind
    let code: NumberCode
    /// The width in bytes; 0 if it is that of the number.
    let width: Int
    /// The field's place in a header in which no width varies; -1 in others.
    let offset: Int
    /// The position of a constant's bytes among those of all constants, or of a custom field's in
    /// ``Frame/customFields``.
    let position: Int
}
