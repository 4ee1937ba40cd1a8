// SPDX-License-Identifier: Apache-2.0
/// The reason why a text is not JSON, with its place.
package struct JSONSyntaxError: Error, CustomStringConvertible {
    var line: Int
    /// The column in bytes, from 1.
    var column: Int
    var reason: String

    package var description: String { "line \(self.line), column \(self.column) of the JSON: \(self.reason)" }
}

/// A strict parser of JSON (RFC 8259).
package struct JSONParser {
    /// The maximum nesting depth of values. Messages may be nested 100 deep, with at most one array between two of
    /// them.
    static let depth = 256
    /// The longest text, in bytes: several times the size of a frame.
    static let length = 1 << 28

    private let bytes: [UInt8]
    private var next = 0

    package static func parse(_ text: String) throws(JSONSyntaxError) -> JSONValue { try self.parse(Array(text.utf8)) }

    /// - Parameter bytes: The text in UTF-8, which must be valid.
    package static func parse(_ bytes: [UInt8]) throws(JSONSyntaxError) -> JSONValue {
        var parser = Self(bytes: bytes)
        guard parser.bytes.count <= Self.length else { throw parser.error("it has more than \(Self.length) bytes") }
        let value = try parser.value(depth: 1)
        parser.skipWhitespace()
        guard parser.peek == nil else { throw parser.unexpected("the end") }
        return value
    }

    private init(bytes: [UInt8]) {
        self.bytes = bytes
    }

    private var peek: UInt8? { self.next < self.bytes.count ? self.bytes[self.next] : nil }

    private mutating func value(depth: Int) throws(JSONSyntaxError) -> JSONValue {
        guard depth <= Self.depth else { throw self.error("values lie within values more than \(Self.depth) deep") }
        self.skipWhitespace()
        guard let byte = self.peek else { throw self.unexpected("a value") }
        switch byte {
        case UInt8(ascii: "{"): return .object(try self.members(depth: depth))
        case UInt8(ascii: "["): return .array(try self.elements(depth: depth))
        case UInt8(ascii: "\""): return .string(try self.string())
        case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): return .number(try self.number())
        case _ where byte.isASCIILetter: return try self.word()
        default: throw self.unexpected("a value")
        }
    }

    private mutating func members(depth: Int) throws(JSONSyntaxError) -> [JSONValue.Member] {
        self.next += 1
        var members: [JSONValue.Member] = []
        var names: Set<String> = []
        self.skipWhitespace()
        if self.take("}") { return members }
        while true {
            self.skipWhitespace()
            let start = self.next
            guard self.peek == UInt8(ascii: "\"") else { throw self.unexpected("a name in quotation marks") }
            let name = try self.string()
            guard names.insert(name).inserted else {
                self.next = start
                throw self.error("the name \(name.quotedInJSON) comes twice in the same object")
            }
            self.skipWhitespace()
            guard self.take(":") else { throw self.unexpected("a colon") }
            members.append(.init(name: name, value: try self.value(depth: depth + 1)))
            self.skipWhitespace()
            if self.take("}") { return members }
            guard self.take(",") else { throw self.unexpected("a comma or the end of the object") }
        }
    }

    private mutating func elements(depth: Int) throws(JSONSyntaxError) -> [JSONValue] {
        self.next += 1
        var elements: [JSONValue] = []
        self.skipWhitespace()
        if self.take("]") { return elements }
        while true {
            elements.append(try self.value(depth: depth + 1))
            self.skipWhitespace()
            if self.take("]") { return elements }
            guard self.take(",") else { throw self.unexpected("a comma or the end of the array") }
        }
    }

    private mutating func word() throws(JSONSyntaxError) -> JSONValue {
        let start = self.next
        while let byte = self.peek, byte.isASCIILetter { self.next += 1 }
        switch self.text(from: start) {
        case "null": return .null
        case "true": return .bool(true)
        case "false": return .bool(false)
        case let word:
            self.next = start
            throw self.error("\(word.prefix(20)) is no value; text is written in quotation marks")
        }
    }

    private mutating func number() throws(JSONSyntaxError) -> String {
        let start = self.next
        while let byte = self.peek, byte.isASCIILetter || byte.isASCIIDigit || "+-.".utf8.contains(byte) {
            self.next += 1
        }
        let text = self.text(from: start)
        guard DecimalNumber(text) != nil else {
            self.next = start
            throw self.error("\(text.prefix(40)) is no number as JSON has them")
        }
        return text
    }

    private mutating func string() throws(JSONSyntaxError) -> String {
        let opening = self.next
        self.next += 1
        var result: [UInt8] = []
        while let byte = self.peek {
            switch byte {
            case UInt8(ascii: "\""):
                self.next += 1
                return String(decoding: result, as: UTF8.self)
            case UInt8(ascii: "\\"):
                result.append(contentsOf: String(try self.escape()).utf8)
            case 0..<0x20:
                throw self.error("a control character in a string; line breaks are written \\n")
            default:
                result.append(byte)
                self.next += 1
            }
        }
        self.next = opening
        throw self.error("a string that does not end")
    }

    private mutating func escape() throws(JSONSyntaxError) -> Character {
        self.next += 1
        guard let byte = self.peek else { throw self.unexpected("an escape") }
        let short: Character? =
            switch byte {
            case UInt8(ascii: "\""): "\""
            case UInt8(ascii: "\\"): "\\"
            case UInt8(ascii: "/"): "/"
            case UInt8(ascii: "b"): "\u{8}"
            case UInt8(ascii: "f"): "\u{C}"
            case UInt8(ascii: "n"): "\n"
            case UInt8(ascii: "r"): "\r"
            case UInt8(ascii: "t"): "\t"
            default: nil
            }
        if let short {
            self.next += 1
            return short
        }
        guard byte == UInt8(ascii: "u") else { throw self.error("there is no such escape") }
        self.next += 1
        var units = [try self.unit()]
        if UTF16.isLeadSurrogate(units[0]) {
            guard self.take("\\"), self.take("u") else { throw self.error("half of a surrogate pair") }
            units.append(try self.unit())
        }
        guard let scalar = Self.scalar(units) else { throw self.error("half of a surrogate pair") }
        return Character(scalar)
    }

    /// Returns the character of one unit, or of a surrogate pair.
    private static func scalar(_ units: [UInt16]) -> Unicode.Scalar? {
        var decoder = UTF16()
        var iterator = units.makeIterator()
        guard case .scalarValue(let scalar) = decoder.decode(&iterator),
            case .emptyInput = decoder.decode(&iterator)
        else { return nil }
        return scalar
    }

    /// Reads four hexadecimal digits.
    private mutating func unit() throws(JSONSyntaxError) -> UInt16 {
        let digits = self.bytes[self.next...].prefix(4)
        guard digits.count == 4, digits.allSatisfy({ Character(Unicode.Scalar($0)).isHexDigit }),
            let unit = UInt16(String(decoding: digits, as: UTF8.self), radix: 16)
        else { throw self.unexpected("four hexadecimal digits") }
        self.next += 4
        return unit
    }

    private mutating func skipWhitespace() {
        while let byte = self.peek, byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 { self.next += 1 }
    }

    private mutating func take(_ character: Unicode.Scalar) -> Bool {
        guard self.peek == UInt8(ascii: character) else { return false }
        self.next += 1
        return true
    }

    private func text(from start: Int) -> String { String(decoding: self.bytes[start..<self.next], as: UTF8.self) }

    private func unexpected(_ expected: String) -> JSONSyntaxError {
        guard self.next < self.bytes.count else { return self.error("it ends where \(expected) is expected") }
        let rest = String(decoding: self.bytes[self.next...].prefix(16), as: UTF8.self)
        return self.error("expected \(expected), found \"\(rest.prefix(1).description.escaped)\"")
    }

    private func error(_ reason: String) -> JSONSyntaxError {
        let before = self.bytes[..<self.next]
        let lineStart = before.lastIndex(of: 0x0A).map { $0 + 1 } ?? 0
        let line = before.count { $0 == 0x0A } + 1
        return JSONSyntaxError(line: line, column: self.next - lineStart + 1, reason: reason)
    }
}

extension UInt8 {
    package var isASCIILetter: Bool {
        (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(self | 0x20)
    }

    package var isASCIIDigit: Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(self) }
}
