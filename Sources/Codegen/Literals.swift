// SPDX-License-Identifier: Apache-2.0
/// Swift literals for default values, which descriptors contain as text.
enum Literals {
    static func string(_ text: String) -> String {
        var literal = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"": literal += "\\\""
            case "\\": literal += "\\\\"
            case "\n": literal += "\\n"
            case "\t": literal += "\\t"
            case _
            where scalar.properties.isWhitespace && scalar != " " || scalar.properties.generalCategory == .control
                || scalar.properties.generalCategory == .format:
                literal += "\\u{\(String(scalar.value, radix: 16, uppercase: true))}"
            default: literal.unicodeScalars.append(scalar)
            }
        }
        return "\"\(literal)\""
    }

    /// - Parameter text: Bytes in the format of protoc: printable ASCII as it is, the rest escaped as in C.
    static func bytes(_ text: String) -> String {
        let bytes = Self.unescaped(text)
        return bytes.isEmpty ? "Data()" : "Data([\(bytes.map(String.init).joined(separator: ", "))])"
    }

    /// - Parameter type: `Float` or `Double`.
    static func floatingPoint(_ text: String, _ type: String) -> String {
        switch text {
        case "inf": "\(type).infinity"
        case "-inf": "-\(type).infinity"
        case "nan", "-nan": "\(type).nan"
        // The compiler warns about literals this close to zero, since few of them are exact.
        case _ where type == "Float" && Float(text)?.isSubnormal == true:
            "Float(bitPattern: \(Float(text)?.bitPattern ?? 0))"
        case _ where type == "Double" && Double(text)?.isSubnormal == true:
            "Double(bitPattern: \(Double(text)?.bitPattern ?? 0))"
        // Without a point or an exponent Swift would read an integer, which has no negative zero.
        default: text.contains { $0 == "." || $0 == "e" } ? text : "\(text).0"
        }
    }

    private static func unescaped(_ text: String) -> [UInt8] {
        var bytes: [UInt8] = []
        var rest = Array(text.utf8)[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "\\"), let escaped = rest.popFirst() else {
                bytes.append(byte)
                continue
            }
            switch escaped {
            case UInt8(ascii: "n"): bytes.append(UInt8(ascii: "\n"))
            case UInt8(ascii: "r"): bytes.append(UInt8(ascii: "\r"))
            case UInt8(ascii: "t"): bytes.append(UInt8(ascii: "\t"))
            case UInt8(ascii: "0")...UInt8(ascii: "7"):
                // Three octal digits, always.
                var value = UInt32(escaped - UInt8(ascii: "0"))
                for digit in rest.prefix(2) { value = value * 8 + UInt32(digit - UInt8(ascii: "0")) }
                rest = rest.dropFirst(2)
                bytes.append(UInt8(truncatingIfNeeded: value))
            default: bytes.append(escaped)
            }
        }
        return bytes
    }
}
