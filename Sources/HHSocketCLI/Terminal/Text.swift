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
        var result = ""
        for scalar in self.unicodeScalars {
            switch scalar {
            case "\\": result += "\\\\"
            case "\n": result += "\\n"
            case "\r": result += "\\r"
            case "\t": result += "\\t"
            case "\0": result += "\\0"
            case _ where scalar.isLineBreaking: result += String(format: "\\u{%x}", scalar.value)
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
