// SPDX-License-Identifier: Apache-2.0
extension Collection<UInt8> {
    /// Two hexadecimal digits for each byte, lower case.
    package var hexadecimal: String {
        let digits = Array("0123456789abcdef".utf8)
        return String(decoding: self.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
    }
}

extension [UInt8] {
    /// Creates the bytes of pairs of hexadecimal digits, upper or lower case; nil for anything else.
    package init?(hexadecimal text: some StringProtocol) {
        let digits = text.utf8.map { Character(Unicode.Scalar($0)).hexDigitValue }
        guard digits.count.isMultiple(of: 2) else { return nil }
        self = []
        self.reserveCapacity(digits.count / 2)
        for index in stride(from: 0, to: digits.count, by: 2) {
            guard let high = digits[index], let low = digits[index + 1] else { return nil }
            self.append(UInt8(high << 4 | low))
        }
    }
}
