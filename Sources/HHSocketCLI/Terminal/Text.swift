// SPDX-License-Identifier: Apache-2.0
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
    /// The text with line breaks replaced by spaces.
    var inOneLine: String {
        String(self.map { $0.isNewline ? " " : $0 })
    }
}
