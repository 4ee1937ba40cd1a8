import NIOCore

/// Gathers the bytes of a stream until they are flushed, and puts them into binary messages of at most
/// ``WebSocketEncoder/maximumStreamMessageLength`` bytes. A client masks them as it copies them; a server passes large
/// bodies on as they are.
struct WebSocketStreamWriter: Sendable {
    /// Smaller parts of a server's messages are copied behind their header, which is cheaper than a vector for each.
    private static let copyLimit = 2_048

    /// The part that was appended first. As a rule it is the only one.
    private var first: ByteBuffer?
    private var others: [ByteBuffer] = []
    /// The number of bytes that were appended and not written.
    private(set) var count = 0

    /// Appends bytes of the stream.
    mutating func append(_ bytes: consuming ByteBuffer) {
        guard bytes.readableBytes > 0 else { return }
        self.count += bytes.readableBytes
        if self.first == nil { self.first = bytes } else { self.others.append(bytes) }
    }

    /// Writes what was appended, in messages.
    mutating func write(_ encoder: inout WebSocketEncoder, into out: inout SendBytes) {
        guard var part = self.first.take() else { return }
        var index = 0
        var rest = self.count
        self.count = 0
        while rest > 0 {
            var missing = min(rest, WebSocketEncoder.maximumStreamMessageLength)
            rest -= missing
            out.prepare()
            var mask = encoder.beginMessage(.binary, length: missing, into: &out.gathered)
            while missing > 0 {
                if part.readableBytes == 0 {
                    part = self.others[index]
                    index += 1
                }
                let length = min(missing, part.readableBytes)
                missing -= length
                guard let piece = part.readSlice(length: length) else { break }
                Self.write(piece, &mask, into: &out)
            }
        }
        self.others.removeAll()
    }

    private static func write(_ piece: ByteBuffer, _ mask: inout WebSocketMask?, into out: inout SendBytes) {
        if var current = mask {
            piece.withUnsafeReadableBytes { out.gathered.write($0, &current) }
            mask = current
        } else if piece.readableBytes > Self.copyLimit {
            out.append(piece)
            out.prepare()
        } else {
            out.gathered.writeImmutableBuffer(piece)
        }
    }
}
