// SPDX-License-Identifier: Apache-2.0
/// A number in JSON's form: `12`, `-0.5`, `1e3`. Exact at any size.
struct DecimalNumber {
    enum NotWhole: Error {
        case fraction, outOfRange
    }

    /// The original text.
    let text: String
    let isNegative: Bool
    /// The digits without leading and trailing zeros.
    private let digits: ArraySlice<UInt8>
    /// The power of ten by which the digits are multiplied.
    private let exponent: Int

    /// Creates a number from its text; nil for anything else.
    init?(_ text: String) {
        var rest = Array(text.utf8)[...]
        self.text = text
        self.isNegative = rest.first == UInt8(ascii: "-")
        if self.isNegative { rest.removeFirst() }
        let whole = rest.takeDigits()
        // Leading zeros are not allowed.
        guard let first = whole.first, first != UInt8(ascii: "0") || whole.count == 1 else { return nil }
        var digits = Array(whole)
        var exponent = 0
        if rest.first == UInt8(ascii: ".") {
            rest.removeFirst()
            let fraction = rest.takeDigits()
            guard !fraction.isEmpty else { return nil }
            digits += fraction
            exponent -= fraction.count
        }
        if let letter = rest.first, letter | 0x20 == UInt8(ascii: "e") {
            rest.removeFirst()
            let sign = rest.first
            if sign == UInt8(ascii: "+") || sign == UInt8(ascii: "-") { rest.removeFirst() }
            let power = rest.takeDigits()
            guard !power.isEmpty else { return nil }
            // Any larger power is out of every range.
            let value = power.reduce(0) { min($0 * 10 + Int($1 - UInt8(ascii: "0")), 1 << 40) }
            exponent += sign == UInt8(ascii: "-") ? -value : value
        }
        guard rest.isEmpty else { return nil }
        let leading = digits.prefix { $0 == UInt8(ascii: "0") }.count
        let trailing = digits[leading...].reversed().prefix { $0 == UInt8(ascii: "0") }.count
        self.digits = digits[leading..<digits.count - trailing]
        self.exponent = exponent + trailing
    }

    /// Returns the number as an integer.
    ///
    /// - Throws: ``NotWhole`` if it has a fraction or does not fit.
    func integer<Integer: FixedWidthInteger>(as type: Integer.Type = Integer.self) throws(NotWhole) -> Integer {
        if self.digits.isEmpty { return 0 }
        guard self.exponent >= 0 else { throw .fraction }
        // No integer here has more than 20 digits.
        guard self.digits.count + self.exponent <= 20 else { throw .outOfRange }
        var value: Integer = 0
        for digit in self.digits + Array(repeating: UInt8(ascii: "0"), count: self.exponent) {
            let (tenfold, overflow) = value.multipliedReportingOverflow(by: 10)
            let step = Integer(digit - UInt8(ascii: "0"))
            let (sum, overflowAgain) =
                self.isNegative ? tenfold.subtractingReportingOverflow(step) : tenfold.addingReportingOverflow(step)
            guard !overflow, !overflowAgain else { throw .outOfRange }
            value = sum
        }
        return value
    }
}

extension ArraySlice<UInt8> {
    fileprivate mutating func takeDigits() -> ArraySlice<UInt8> {
        let digits = self.prefix { $0.isASCIIDigit }
        self = self[digits.endIndex...]
        return digits
    }
}
