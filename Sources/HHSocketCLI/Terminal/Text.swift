import Foundation

extension Duration {
    var inMilliseconds: Double {
        let (seconds, attoseconds) = self.components
        return Double(seconds) * 1e3 + Double(attoseconds) * 1e-15
    }
}

extension Int {
    /// With a comma between thousands.
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
    /// This text without anything that would end or disturb a line: control characters and backslashes are escaped
    /// as in Swift.
    var escaped: String {
        self.escaped { $0 == "\0" ? "\\0" : String(format: "\\u{%x}", $0.value) }
    }

    /// This text with a backslash before backslashes and `quote`, and what would end or disturb a line escaped.
    ///
    /// - Parameter escape: Writes such a character, where it is no newline, carriage return or tab.
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

    /// This text, its line breaks replaced by spaces.
    var inOneLine: String {
        String(self.map { $0.isNewline ? " " : $0 })
    }
}
