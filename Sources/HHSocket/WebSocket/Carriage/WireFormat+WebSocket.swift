extension WireFormat {
    /// The subprotocol of the standard format.
    private static let standardSubprotocol = "hhsocket.1"

    /// The subprotocol by which a WebSocket carries frames of this format; nil for a format that is no preset.
    package var subprotocol: String? {
        if self == .standard { return Self.standardSubprotocol }
        return Self.presets.first { $0.value == self }.map { "\(Self.standardSubprotocol).\($0.key)" }
    }

    /// Whether the first frame of a client may begin with an upper-case letter of ASCII, as a request of HTTP does.
    package var mayBeginWithLetter: Bool {
        let letters = UInt8(ascii: "A")...UInt8(ascii: "Z")
        switch self.layout.request.first?.kind {
        case .word(.type, .big):
            // Bits of hello's features are in no first frame.
            return self.layout.applicationTypes.upperBound >> 24 >= UInt32(letters.lowerBound)
        case .word(.length, .big):
            // Such a length is over every limit.
            return false
        case .headerLength(let longest, let order):
            return order == .little && longest >= Int(letters.lowerBound)
        case .constant(let bytes):
            return bytes.first.map(letters.contains) ?? true
        case .word, .custom, nil:
            return true
        }
    }
}
