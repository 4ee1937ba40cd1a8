// SPDX-License-Identifier: Apache-2.0
/// A reader of bytes from text: plain hexadecimal digits, or the output of `xxd`, `hexdump -C` or `tcpdump -x`.
struct HexDump {
    struct Malformed: Error, CustomStringConvertible {
        var line: Int
        var reason: String

        var description: String { "line \(self.line) of the hex dump: \(self.reason)" }
    }

    private var line = 0
    /// Whether a line with an offset as in `hexdump -C` has been seen; only then does a line with nothing but an offset
    /// end the dump.
    private var hasOffsets = false

    /// Returns the bytes of the next line.
    mutating func bytes(of text: some StringProtocol) throws(Malformed) -> [UInt8] {
        self.line += 1
        let digits = self.digits(of: text)
        guard digits != "*" else { throw self.malformed("repeated lines are omitted; make the dump with hexdump -v") }
        var bytes: [UInt8] = []
        for token in digits.split(whereSeparator: { $0.isWhitespace || $0 == "," || $0 == ":" }) {
            let token = token.hasPrefix("0x") || token.hasPrefix("0X") ? token.dropFirst(2) : token
            guard token.count.isMultiple(of: 2) else {
                throw self.malformed("\"\(token)\" has an odd number of digits")
            }
            var rest = token
            while let high = rest.popFirst(), let low = rest.popFirst() {
                guard let high = Self.value(high), let low = Self.value(low) else {
                    throw self.malformed("\"\(token)\" is not a hexadecimal number")
                }
                bytes.append(high << 4 | low)
            }
        }
        return bytes
    }

    /// Returns a line without its offset and its column of characters.
    private mutating func digits(of text: some StringProtocol) -> Substring {
        var rest = Substring(text)[...]
        if let bar = rest.firstIndex(of: "|") { rest = rest[..<bar] }
        rest = rest.drop { $0.isWhitespace }
        if let colon = rest.firstIndex(of: ":"), Self.isOffset(rest[..<colon]),
            rest[rest.index(after: colon)...].first?.isWhitespace == true
        {
            // xxd and tcpdump: two spaces precede the characters.
            rest = rest[rest.index(after: colon)...].drop { $0.isWhitespace }
            return rest.range(ofDoubleSpace: ()).map { rest[..<$0] } ?? rest
        }
        let first = rest.prefix { !$0.isWhitespace }
        let others = rest[first.endIndex...].split(whereSeparator: \.isWhitespace)
        guard first.count == 8, Self.isOffset(first) else { return rest }
        if rest[first.endIndex...].hasPrefix("  "), others.allSatisfy({ $0.count == 2 }) {
            self.hasOffsets = true
            return rest[first.endIndex...]
        }
        return self.hasOffsets && others.isEmpty ? "" : rest
    }

    private func malformed(_ reason: String) -> Malformed { Malformed(line: self.line, reason: reason) }

    private static func isOffset(_ text: Substring) -> Bool {
        let digits = text.hasPrefix("0x") ? text.dropFirst(2) : text
        return digits.count >= 4 && digits.allSatisfy { Self.value($0) != nil }
    }

    private static func value(_ digit: Character) -> UInt8? {
        digit.isASCII ? digit.hexDigitValue.map(UInt8.init) : nil
    }
}

extension Substring {
    /// Returns the index of the first two consecutive spaces.
    fileprivate func range(ofDoubleSpace: Void) -> Index? {
        var previous: Index?
        for index in self.indices {
            if self[index] == " ", let before = previous, self[before] == " " { return before }
            previous = index
        }
        return nil
    }
}
