// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage

/// Reads ASN.1 values in DER (X.690), as far as certificates and lists of revoked ones need that.
struct DER {
    struct Failure: Error {
        var reason: String
    }

    static let boolean: UInt8 = 0x01
    static let integer: UInt8 = 0x02
    static let objectIdentifier: UInt8 = 0x06
    static let utcTime: UInt8 = 0x17
    static let generalizedTime: UInt8 = 0x18
    static let sequence: UInt8 = 0x30

    /// The tag of a constructed value with this number.
    static func context(_ number: UInt8) -> UInt8 { 0xA0 | number }

    private var rest: ArraySlice<UInt8>

    init(_ bytes: ArraySlice<UInt8>) {
        self.rest = bytes
    }

    var isEmpty: Bool { self.rest.isEmpty }

    var isTimeNext: Bool { self.rest.first == Self.utcTime || self.rest.first == Self.generalizedTime }

    /// Reads the content of a value.
    ///
    /// - Parameter what: The value's name, for the error.
    mutating func read(_ tag: UInt8, _ what: String) throws(Failure) -> ArraySlice<UInt8> {
        try self.next(tag, what).content
    }

    /// Reads a value with its tag and its length.
    mutating func readWhole(_ tag: UInt8, _ what: String) throws(Failure) -> ArraySlice<UInt8> {
        try self.next(tag, what).whole
    }

    /// Reads the content of an optional value.
    mutating func readIfNext(_ tag: UInt8) throws(Failure) -> ArraySlice<UInt8>? {
        guard self.rest.first == tag else { return nil }
        return try self.next(tag, "a value").content
    }

    private mutating func next(
        _ tag: UInt8,
        _ what: String
    ) throws(Failure) -> (content: ArraySlice<UInt8>, whole: ArraySlice<UInt8>) {
        let begin = self.rest
        guard self.rest.popFirst() == tag, let first = self.rest.popFirst() else {
            throw Failure(reason: "\(what) is missing")
        }
        var length = Int(first)
        if first >= 0x80 {
            // Lengths of 2 GiB and more are not believed.
            let count = Int(first & 0x7F)
            guard (1...4).contains(count), self.rest.count >= count else {
                throw Failure(reason: "the length of \(what) cannot be read")
            }
            length = self.rest.prefix(count).reduce(0) { $0 << 8 | Int($1) }
            self.rest = self.rest.dropFirst(count)
        }
        guard length <= Int32.max, length <= self.rest.count else { throw Failure(reason: "\(what) is truncated") }
        let content = self.rest.prefix(length)
        self.rest = self.rest.dropFirst(length)
        return (content, begin.prefix(begin.count - self.rest.count))
    }

    /// Reads a date.
    ///
    /// - Returns: Seconds since 1970.
    mutating func readTime(_ what: String) throws(Failure) -> Int64 {
        let isShort = self.rest.first == Self.utcTime
        let text = try self.read(isShort ? Self.utcTime : Self.generalizedTime, what)
        let digits = text.dropLast().map { Int64($0) - 48 }
        guard text.last == UInt8(ascii: "Z"), digits.count == (isShort ? 12 : 14),
            digits.allSatisfy({ (0...9).contains($0) })
        else { throw Failure(reason: "\(what) cannot be read") }
        var pairs = stride(from: 0, to: digits.count, by: 2).map { digits[$0] * 10 + digits[$0 + 1] }
        // RFC 5280, 4.1.2.5.1: two digits are of 1950 to 2049.
        let century = isShort ? (pairs[0] < 50 ? 20 : 19) : pairs.removeFirst()
        let (year, month, day) = (century * 100 + pairs[0], pairs[1], pairs[2])
        guard (1...12).contains(month), (1...31).contains(day), pairs[3] < 24, pairs[4] < 60, pairs[5] <= 60 else {
            throw Failure(reason: "\(what) is not a date")
        }
        let days = CivilDate(year: year, month: month, day: day).daysSince1970
        return days * 86_400 + pairs[3] * 3_600 + pairs[4] * 60 + pairs[5]
    }
}
