// SPDX-License-Identifier: Apache-2.0
extension WireFormat {
    /// The largest possible header, in bytes.
    package static let maximumHeaderLength = 1_024

    /// The order of the bytes of an integer.
    public enum ByteOrder: String, Sendable, Hashable, Codable, CaseIterable {
        /// The most significant one: network byte order.
        case big
        case little
    }

    /// The representation of a number in a header: an unsigned integer of some bytes, or digits in ASCII.
    ///
    /// A number is 4,294,967,295 (32 bits) at most, even if its field could hold more: a frame with a larger one is
    /// refused.
    public struct Number: Sendable, Hashable {
        package enum Radix: String, Sendable, Hashable, Codable, CaseIterable {
            case decimal, hexadecimal

            var value: UInt64 { self == .decimal ? 10 : 16 }
        }

        package enum Kind: Sendable, Hashable {
            case integer(bytes: Int, ByteOrder)
            /// Nil: as many digits as the number has.
            case digits(Radix, count: Int?)
        }

        package let kind: Kind

        package init(kind: Kind) { self.kind = kind }

        /// An unsigned integer of 1, 2, 3, 4 or 8 bytes.
        ///
        /// - Parameters:
        ///   - bytes: The width of the field; 4 by default.
        ///   - order: Big-endian by default.
        package static func integer(bytes: Int = 4, _ order: ByteOrder = .big) -> Number {
            Number(kind: .integer(bytes: bytes, order))
        }

        /// Decimal digits, as many as the number has: leading zeros are read and never written. The field ends where a
        /// constant follows, which must not begin with a digit.
        public static let decimal = Number(kind: .digits(.decimal, count: nil))

        /// Hexadecimal digits, as many as the number has: leading zeros and both cases are read; lower case is written,
        /// without leading zeros. The field ends where a constant follows, which must not begin with such a digit.
        public static let hexadecimal = Number(kind: .digits(.hexadecimal, count: nil))

        /// Decimal digits in a field of a fixed width, filled up with zeros in front.
        ///
        /// - Parameter digits: The width in digits, from 1 to 20.
        public static func decimal(digits: Int) -> Number { Number(kind: .digits(.decimal, count: digits)) }

        /// Hexadecimal digits in a field of a fixed width, filled up with zeros in front. Both cases are read, and
        /// lower case is written.
        ///
        /// - Parameter digits: The width in digits, from 1 to 20.
        public static func hexadecimal(digits: Int) -> Number { Number(kind: .digits(.hexadecimal, count: digits)) }

        /// The width of the field in bytes; nil if it is that of the number.
        var width: Int? {
            switch self.kind {
            case .integer(let bytes, _): bytes
            case .digits(_, let count): count
            }
        }

        /// The largest number that the field can hold.
        var largest: UInt32 {
            switch self.kind {
            case .integer(let bytes, _):
                return bytes >= 4 ? .max : bytes < 1 ? 0 : UInt32(1) << UInt32(bytes * 8) - 1
            case .digits(_, nil):
                return .max
            case .digits(let radix, let count?):
                var largest: UInt64 = 0
                for _ in 0..<max(0, min(count, 10)) { largest = largest * radix.value + radix.value - 1 }
                return UInt32(clamping: largest)
            }
        }

        /// The largest width in bytes.
        var largestWidth: Int {
            switch self.kind {
            case .digits(.decimal, nil): 10
            case .digits(.hexadecimal, nil): 8
            default: self.width ?? 0
            }
        }
    }

    /// One field of a header.
    public struct Field: Sendable, Hashable {
        package enum Kind: Sendable, Hashable {
            case word(Word, Number)
            case headerLength(upTo: Int, Number)
            case flags(UInt32, Number)
            case constant([UInt8])
            case custom(String, Int)
        }

        package enum Word: String, Sendable, Hashable {
            case type, serial, status, length
        }

        package let kind: Kind

        package init(kind: Kind) { self.kind = kind }

        /// The kind of the frame. A response may lack it: then it has the type of its call.
        ///
        /// - Parameters:
        ///   - order: Big-endian by default.
        ///   - bytes: 1, 2, 3, 4 or 8; 4 by default.
        public static func type(_ order: ByteOrder = .big, bytes: Int = 4) -> Field {
            .type(.integer(bytes: bytes, order))
        }
        /// The kind of the frame.
        public static func type(_ number: Number) -> Field { Field(kind: .word(.type, number)) }

        /// The number that joins a response to its request.
        ///
        /// - Parameters:
        ///   - order: Big-endian by default.
        ///   - bytes: 1, 2, 3, 4 or 8; 4 by default.
        public static func serial(_ order: ByteOrder = .big, bytes: Int = 4) -> Field {
            .serial(.integer(bytes: bytes, order))
        }
        /// The number that matches a response to its request.
        public static func serial(_ number: Number) -> Field { Field(kind: .word(.serial, number)) }

        /// The outcome of the request. In a request it is ``Layout/okStatus``.
        ///
        /// - Parameters:
        ///   - order: Big-endian by default.
        ///   - bytes: 1, 2, 3, 4 or 8; 4 by default.
        public static func status(_ order: ByteOrder = .big, bytes: Int = 4) -> Field {
            .status(.integer(bytes: bytes, order))
        }
        /// The outcome of the request.
        public static func status(_ number: Number) -> Field { Field(kind: .word(.status, number)) }

        /// The length of the payload, of the frame, or of everything after this field: ``Layout/lengthCounts``.
        ///
        /// - Parameters:
        ///   - order: Big-endian by default.
        ///   - bytes: 1, 2, 3, 4 or 8; 4 by default.
        public static func length(_ order: ByteOrder = .big, bytes: Int = 4) -> Field {
            .length(.integer(bytes: bytes, order))
        }
        /// The length.
        public static func length(_ number: Number) -> Field { Field(kind: .word(.length, number)) }

        /// The header's length in bytes. Written as the length of this layout. A larger value, up to `upTo` bytes, is
        /// accepted, and the bytes after the last field here are skipped.
        ///
        /// - Parameters:
        ///   - upTo: The longest header that is accepted.
        ///   - order: Big-endian by default.
        ///   - bytes: 1, 2, 3, 4 or 8; 4 by default.
        public static func headerLength(upTo: Int, _ order: ByteOrder = .big, bytes: Int = 4) -> Field {
            Field(kind: .headerLength(upTo: upTo, .integer(bytes: bytes, order)))
        }

        /// Bits that can distinguish a push from a response: ``Push/init(flag:mask:serial:)``.
        ///
        /// - Parameters:
        ///   - value: The value that is written in every frame but a push; any other is accepted. 0 by default.
        ///   - bytes: 1, 2, 3, 4 or 8; 1 by default.
        ///   - order: Big-endian by default.
        public static func flags(_ value: UInt32 = 0, bytes: Int = 1, _ order: ByteOrder = .big) -> Field {
            Field(kind: .flags(value, .integer(bytes: bytes, order)))
        }

        /// Bytes that are the same in every frame, such as a magic number, a version, or a separator. A frame with
        /// others is refused.
        public static func constant(_ bytes: [UInt8]) -> Field { Field(kind: .constant(bytes)) }
        /// A separator, or another text that is the same in every frame.
        package static func text(_ text: String) -> Field { Field(kind: .constant(Array(text.utf8))) }
        /// A number of raw bytes, set per request by name (`SocketRequest.header`), or zero.
        public static func custom(_ name: String, bytes: Int) -> Field { Field(kind: .custom(name, bytes)) }

        /// The notation of the field's number; nil if it has none.
        var number: Number? {
            switch self.kind {
            case .word(_, let number), .headerLength(_, let number), .flags(_, let number): number
            case .constant, .custom: nil
            }
        }

        /// The field's width in bytes; nil where it depends on the number.
        package var width: Int? {
            switch self.kind {
            case .word(_, let number), .headerLength(_, let number), .flags(_, let number): number.width
            case .constant(let bytes): bytes.count
            case .custom(_, let width): width
            }
        }

        /// The largest width in bytes.
        var largestWidth: Int { self.number?.largestWidth ?? self.width ?? 0 }

        func has(_ word: Word) -> Bool {
            if case .word(word, _) = self.kind { true } else { false }
        }
    }
}

extension [WireFormat.Field] {
    /// The notation of a header's type, serial, status or length; nil if it has none.
    func number(of word: WireFormat.Field.Word) -> WireFormat.Number? {
        self.lazy.compactMap { field -> WireFormat.Number? in field.has(word) ? field.number : nil }.first
    }
}
