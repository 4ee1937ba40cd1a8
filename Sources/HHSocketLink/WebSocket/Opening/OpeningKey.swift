// SPDX-License-Identifier: Apache-2.0
/// The nonce of an opening request, by whose hash a server shows that it understood the request (RFC 6455, sections 4.1
/// and 4.2.2).
package struct OpeningKey: Hashable, Sendable {
    /// The number of bytes that the nonce has.
    package static let byteCount = 16
    private static let suffix = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

    /// The value of `Sec-WebSocket-Key`: 16 bytes in Base64, 24 characters.
    package let text: String

    /// Creates a key from 16 bytes; nil for any other number.
    package init?(_ bytes: [UInt8]) {
        guard bytes.count == Self.byteCount else { return nil }
        self.text = Base64.encode(bytes)
    }

    /// Creates a random key.
    package init(using random: inout some RandomNumberGenerator) {
        // Two words, since each call of the system's generator is one of the kernel's.
        let words = [random.next(), random.next()] as [UInt64]
        self.text = Base64.encode(words.flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> (8 * $0)) } })
    }

    /// Creates the key that a request has; nil for what does not decode to 16 bytes.
    package init?(text: String) {
        let bytes = text.utf8
        // 22 digits are 132 bits. The four that 16 bytes do not fill may be anything, as for nearly every decoder.
        guard bytes.count == 24, bytes.prefix(22).allSatisfy(Base64.isDigit), text.hasSuffix("==") else { return nil }
        self.text = text
    }

    /// The value of `Sec-WebSocket-Accept` that answers this key.
    package var accept: String {
        Base64.encode(SHA1.hash(of: Array((self.text + Self.suffix).utf8)))
    }
}
