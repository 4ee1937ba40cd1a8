// SPDX-License-Identifier: Apache-2.0
extension WireFormat {
    /// The subprotocol of the standard format.
    private static let standardSubprotocol = "hhsocket.1"

    /// The subprotocol by which a WebSocket carries frames of this format; nil for a format that is no preset.
    package var subprotocol: String? {
        if self == .standard { return Self.standardSubprotocol }
        return Self.presets.first { $0.value == self }.map { "\(Self.standardSubprotocol).\($0.key)" }
    }

    /// Whether the first frame of a client may begin with an upper-case ASCII letter, like an HTTP request.
    package var mayBeginWithLetter: Bool {
        // Only the codec knows.
        guard !self.hasCodec else { return true }
        let letters = UInt8(ascii: "A")...UInt8(ascii: "Z")
        switch self.layout.request.first?.kind {
        case .word(_, let number)? where number.kind == .digits(.decimal, count: number.width):
            return false
        case .word(.type, let number)? where number == .integer():
            // Bits of hello's features are in no first frame.
            return self.layout.applicationTypes.upperBound >> 24 >= UInt32(letters.lowerBound)
        case .word(.length, let number)? where number == .integer():
            // Such a length exceeds every limit.
            return false
        case .headerLength(let longest, let number)?:
            // In 3 or 4 bytes the first is 0, since no header is so long.
            let beginsWithZero = number == .integer(bytes: 3) || number == .integer()
            return !beginsWithZero && longest >= Int(letters.lowerBound)
        case .flags(let value, let number)? where number == .integer(bytes: 1):
            return letters.contains(UInt8(truncatingIfNeeded: value))
        case .constant(let bytes)?:
            return bytes.first.map(letters.contains) ?? true
        case .word, .flags, .custom, nil:
            return true
        }
    }
}
