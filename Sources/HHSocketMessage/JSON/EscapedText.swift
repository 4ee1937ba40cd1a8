// SPDX-License-Identifier: Apache-2.0
extension String {
    /// The text in JSON's form, in quotation marks.
    package var quotedInJSON: String {
        "\"\(self.escaped(also: "\"") { "\\u\(Self.hexadecimal($0.value, width: 4))" })\""
    }

    /// The text with control characters, line separators and backslashes escaped as in Swift.
    package var escaped: String {
        self.escaped { $0 == "\0" ? "\\0" : "\\u{\(Self.hexadecimal($0.value))}" }
    }

    /// Returns the text with a backslash before backslashes and `quote`, and with control characters and line
    /// separators escaped.
    ///
    /// - Parameter escape: Escapes such a character other than newline, carriage return and tab.
    package func escaped(also quote: Unicode.Scalar? = nil, _ escape: (Unicode.Scalar) -> String) -> String {
        var result = ""
        for scalar in self.unicodeScalars {
            switch scalar {
            case "\\", quote: result += "\\\(scalar)"
            case "\n": result += "\\n"
            case "\r": result += "\\r"
            case "\t": result += "\\t"
            case _ where scalar.isLineBreaking: result += escape(scalar)
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result
    }

    private static func hexadecimal(_ number: UInt32, width: Int = 0) -> String {
        let digits = String(number, radix: 16)
        return String(repeating: "0", count: Swift.max(0, width - digits.count)) + digits
    }
}

extension Unicode.Scalar {
    /// Whether it is a control character, or one that some programs treat as the end of a line. All of them have at
    /// most four hex digits.
    package var isLineBreaking: Bool {
        switch self.value {
        case 0..<0x20, 0x7F..<0xA0, 0x2028, 0x2029: true
        default: false
        }
    }
}
