// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage

/// The characters and comparisons of HTTP (RFC 9110, section 5.6).
package enum HTTPSyntax {
    static let carriageReturn = UInt8(ascii: "\r")
    static let lineFeed = UInt8(ascii: "\n")
    /// The largest total length of the heads of a stream, in bytes, with the empty lines at their ends.
    static let maximumHeadLength = 16 << 10

    /// Whether `byte` may occur in a token (RFC 9110, section 5.6.2).
    static func isTokenByte(_ byte: UInt8) -> Bool {
        byte.isASCIILetter || byte.isASCIIDigit || "!#$%&'*+-.^_`|~".utf8.contains(byte)
    }

    /// Whether `bytes` are a token, which has at least one character.
    static func isToken(_ bytes: some Collection<UInt8>) -> Bool {
        !bytes.isEmpty && bytes.allSatisfy(self.isTokenByte)
    }

    /// Whether `byte` may occur in the value of a field: all but control characters, except the tab (RFC 9110, section
    /// 5.5).
    static func isValueByte(_ byte: UInt8) -> Bool {
        (byte >= 0x20 && byte != 0x7F) || byte == UInt8(ascii: "\t")
    }

    static func isBlank(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t")
    }

    /// `bytes` without the blanks around them.
    static func trimmed<Bytes: BidirectionalCollection<UInt8>>(
        _ bytes: Bytes
    ) -> Bytes.SubSequence where Bytes.SubSequence == Bytes {
        var rest = bytes.drop(while: self.isBlank)
        while let last = rest.last, self.isBlank(last) { rest = rest.dropLast() }
        return rest
    }

    static func lowercased(_ byte: UInt8) -> UInt8 {
        (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte) ? byte | 0x20 : byte
    }

    /// Whether both texts are equal except for the case of ASCII letters. String's own comparisons would also equate
    /// letters outside of ASCII, such as the Kelvin sign with a k.
    static func isSame(_ first: some StringProtocol, _ second: some StringProtocol) -> Bool {
        first.utf8.count == second.utf8.count
            && zip(first.utf8, second.utf8).allSatisfy { self.lowercased($0) == self.lowercased($1) }
    }

    /// The elements of a comma-separated list, without the empty ones, which a recipient ignores (RFC 9110, section
    /// 5.6.1.2).
    static func listElements(_ value: String) -> [Substring] {
        value.utf8.split(separator: UInt8(ascii: ",")).compactMap { element in
            let element = Substring(self.trimmed(element))
            return element.isEmpty ? nil : element
        }
    }

    /// A number in decimal digits without a sign. A number over `limit` is `limit`, so that no text overflows; nil for
    /// anything else than digits.
    static func number(_ digits: some Collection<UInt8>, limit: Int) -> Int? {
        guard !digits.isEmpty else { return nil }
        var number = 0
        for digit in digits {
            guard digit.isASCIIDigit else { return nil }
            number = min(number * 10 + Int(digit - UInt8(ascii: "0")), limit)
        }
        return number
    }

    /// Makes text of a peer fit for messages and logs: short, printable, and on one line.
    static func shown(_ bytes: some Sequence<UInt8>) -> String {
        String(decoding: bytes.prefix(80).map { $0 >= 0x20 && $0 < 0x7F ? $0 : UInt8(ascii: "?") }, as: UTF8.self)
    }

    /// The words after a status in the first line of an answer.
    package static func reason(_ status: Int) -> String {
        switch status {
        case 200: "OK"
        case 301: "Moved Permanently"
        case 302: "Found"
        case 303: "See Other"
        case 307: "Temporary Redirect"
        case 308: "Permanent Redirect"
        case 400: "Bad Request"
        case 401: "Unauthorized"
        case 403: "Forbidden"
        case 404: "Not Found"
        case 405: "Method Not Allowed"
        case 426: "Upgrade Required"
        case 429: "Too Many Requests"
        case 431: "Request Header Fields Too Large"
        case 500: "Internal Server Error"
        case 503: "Service Unavailable"
        default: status < 400 ? "Redirect" : status < 500 ? "Refused" : "Server Error"
        }
    }
}
