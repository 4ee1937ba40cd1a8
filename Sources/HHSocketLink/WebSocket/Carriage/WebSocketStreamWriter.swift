// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Gathers the bytes of a stream until they are flushed, and writes them as binary messages of at most
/// ``WebSocketEncoder/maximumStreamMessageLength`` bytes. A client masks them as it copies them; a server passes large
/// bodies on without a copy.
struct WebSocketStreamWriter: Sendable {
    /// The longest header of a message, with its masking key, in bytes.
    private static let headerLength = 8
    /// The largest number of parts whose storage is used again.
    private static let maximumKeptParts = 8

    /// The part that was appended first. As a rule it is the only one.
    private var first: ByteBuffer?
    private var others: [ByteBuffer] = []
    /// The number of bytes that were appended and not written.
    private(set) var count = 0
    /// The number of them that are in large parts.
    private var largeCount = 0

    /// Appends bytes of the stream.
    mutating func append(_ bytes: consuming ByteBuffer) {
        guard bytes.readableBytes > 0 else { return }
        self.count += bytes.readableBytes
        if bytes.readableBytes > SendBytes.largestCopiedPayload { self.largeCount += bytes.readableBytes }
        if self.first == nil { self.first = bytes } else { self.others.append(bytes) }
    }

    /// The number of bytes that are copied, with the headers of their messages; approximate if large parts are not
    /// copied.
    func copiedLength(_ encoder: WebSocketEncoder) -> Int {
        let messages = self.count / WebSocketEncoder.maximumStreamMessageLength + 1
        return (encoder.sendsUnmasked ? self.count - self.largeCount : self.count) + messages * Self.headerLength
    }

    /// Writes the appended bytes, in messages.
    mutating func write(_ encoder: inout WebSocketEncoder, into out: inout SendBytes) {
        guard var part = self.first.take() else { return }
        var index = 0
        var rest = self.count
        self.count = 0
        self.largeCount = 0
        while rest > 0 {
            var missing = min(rest, WebSocketEncoder.maximumStreamMessageLength)
            rest -= missing
            out.prepare()
            // One that is compressed has to be in one piece.
            var whole: ByteBuffer?
            var mask: WebSocketMask?
            if encoder.mayCompress(length: missing) {
                whole = ByteBuffer()
                whole?.reserveCapacity(missing)
            } else {
                mask = encoder.beginMessage(.binary, length: missing, into: &out.gathered)
            }
            while missing > 0 {
                if part.readableBytes == 0 {
                    part = self.others[index]
                    index += 1
                }
                let length = min(missing, part.readableBytes)
                missing -= length
                guard let piece = part.readSlice(length: length) else { break }
                if whole?.writeImmutableBuffer(piece) == nil { out.append(piece, masking: &mask) }
            }
            if let whole { encoder.encode(.binary, whole, into: &out.gathered) }
        }
        if !self.others.isEmpty { self.others.removeAll(keepingCapacity: self.others.count <= Self.maximumKeptParts) }
    }
}
