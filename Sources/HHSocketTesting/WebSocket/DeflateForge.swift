// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

extension WebSocketFrame {
    /// A compressed binary message of zeros that is a thousand times as long once it is inflated, whether or not
    /// compression was agreed on.
    ///
    /// - Parameter length: The length of the inflated message, in bytes.
    public static func deflateBomb(inflatingTo length: Int) -> Self {
        // Each piece ends at a byte and refers to none before it, so that they can be put in a row.
        let pieceLength = 1 << 20
        let tail: [UInt8] = [0, 0, 0xFF, 0xFF]
        var payload = ByteBuffer()
        func append(_ length: Int, times: Int) {
            guard length > 0, times > 0,
                let piece = DeflateForge.compress(ByteBuffer(repeating: 0, count: length))
            else { return }
            for _ in 0..<times {
                if payload.readableBytes > 0 { payload.writeBytes(tail) }
                payload.writeImmutableBuffer(piece)
            }
        }
        append(pieceLength, times: length / pieceLength)
        append(length % pieceLength, times: 1)
        return WebSocketFrame.binary(payload).reserving(bits: Self.compressionBit)
    }

    /// Returns the message compressed, whether or not compression was agreed on. It refers to no other message.
    package func compressed() -> Self {
        guard let payload = DeflateForge.compress(self.payload) else { return self }
        var frame = self
        frame.payload = payload
        frame.reservedBits |= Self.compressionBit
        return frame
    }
}

enum DeflateForge {
    /// Compresses a message that refers to none before it; nil for an empty one.
    static func compress(_ message: ByteBuffer) -> ByteBuffer? {
        WebSocketDeflater(DeflateDirection(windowBits: 15, keepsWindow: false), account: nil, minimumLength: 0)?
            .compress(message)
    }
}
