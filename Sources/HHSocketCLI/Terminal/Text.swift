import Foundation

extension Duration {
    var inMilliseconds: Double {
        let (seconds, attoseconds) = self.components
        return Double(seconds) * 1e3 + Double(attoseconds) * 1e-15
    }
}

extension Int {
    /// The digits in groups of three, separated by commas.
    var grouped: String {
        var digits = String(self.magnitude)
        var groups: [Substring] = []
        while digits.count > 3 {
            groups.insert(Substring(digits.suffix(3)), at: 0)
            digits.removeLast(3)
        }
        return (self < 0 ? "-" : "") + ([digits[...]] + groups).joined(separator: ",")
    }
}

extension String {
    /// The text with control characters, line separators and backslashes escaped as in Swift.
    var escaped: String {
        self.escaped { $0 == "\0" ? "\\0" : String(format: "\\u{%x}", $0.value) }
    }

    /// Returns the text with a backslash before backslashes and `quote`, and with control characters and line
    /// separators escaped.
    ///
    /// - Parameter escape: Escapes such a character other than newline, carriage return and tab.
    func escaped(also quote: Unicode.Scalar? = nil, _ escape: (Unicode.Scalar) -> String) -> String {
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

    /// The text with line breaks replaced by spaces.
    var inOneLine: String {
        String(self.map { $0.isNewline ? " " : $0 })
    }
}
