// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Reads the beginning of a response's body, which describes why an opening was refused. Nothing here is an error: if
/// the body's framing is invalid, or longer than the limit, it ends.
struct HTTPBodyReader: Sendable {
    /// The number of bytes that are kept.
    static let maximumLength = 8 << 10
    /// The longest line around a chunk that is waited for, in bytes.
    private static let maximumChunkLine = 1 << 10

    private enum State {
        /// A number of bytes, or all until the connection closes.
        case plain(remaining: Int)
        case chunkSize
        case chunk(remaining: Int)
        case chunkEnd
        case complete
    }

    private var state: State
    private(set) var body = ByteBuffer()

    /// Creates the reader for a response with a final status (RFC 9112, section 6.3).
    init(status: Int, fields: HTTPFields) {
        let codings = fields.list("Transfer-Encoding")
        if status == 204 || status == 304 {
            self.state = .complete
        } else if let coding = codings.last {
            self.state = HTTPSyntax.isSame(coding, "chunked") ? .chunkSize : .plain(remaining: .max)
        } else {
            // A list may repeat one length. If lengths differ, only the connection's end determines the end.
            let lengths = Set(fields.list("Content-Length").map { HTTPSyntax.number($0.utf8, limit: .max / 16) })
            let length = lengths.count == 1 ? lengths.first ?? nil : nil
            self.state = .plain(remaining: length ?? .max)
        }
    }

    /// Consumes bytes from the front of `bytes`. Returns whether the body is complete.
    mutating func read(_ bytes: inout ByteBuffer) -> Bool {
        while true {
            switch self.state {
            case .complete:
                return true
            case .plain(let remaining):
                let left = remaining - self.take(&bytes, remaining)
                self.state = left == 0 || self.isFull ? .complete : .plain(remaining: left)
                guard case .complete = self.state else { return false }
            case .chunk(let remaining):
                let left = remaining - self.take(&bytes, remaining)
                self.state = self.isFull ? .complete : left == 0 ? .chunkEnd : .chunk(remaining: left)
                if case .chunk = self.state { return false }
            case .chunkSize, .chunkEnd:
                guard self.readChunkLine(&bytes) else { return false }
            }
        }
    }

    private var isFull: Bool { self.body.readableBytes >= Self.maximumLength }

    /// Moves up to `limit` bytes, as far as there is room. Returns their number.
    private mutating func take(_ bytes: inout ByteBuffer, _ limit: Int) -> Int {
        let count = min(limit, bytes.readableBytes, Self.maximumLength - self.body.readableBytes)
        guard count > 0, var slice = bytes.readSlice(length: count) else { return 0 }
        self.body.writeBuffer(&slice)
        return count
    }

    /// Reads the line with a chunk's size, or the end of the line after its bytes (RFC 9112, section 7.1). Returns
    /// false if it is incomplete.
    private mutating func readChunkLine(_ bytes: inout ByteBuffer) -> Bool {
        let view = bytes.readableBytesView.prefix(Self.maximumChunkLine)
        guard let end = view.firstIndex(of: HTTPSyntax.lineFeed) else {
            guard view.count == Self.maximumChunkLine else { return false }
            self.state = .complete
            return true
        }
        var line = view[..<end]
        if line.last == HTTPSyntax.carriageReturn { line = line.dropLast() }
        if case .chunkEnd = self.state {
            self.state = line.isEmpty ? .chunkSize : .complete
        } else {
            let digits = HTTPSyntax.trimmed(line.prefix { $0 != UInt8(ascii: ";") })
            let size = digits.count <= 8 ? Int(String(decoding: digits, as: UTF8.self), radix: 16) : nil
            // Trailers, which follow a chunk of no bytes, are of no use here.
            self.state = size.map { $0 > 0 ? .chunk(remaining: $0) : .complete } ?? .complete
        }
        bytes.moveReaderIndex(forwardBy: end - view.startIndex + 1)
        return true
    }
}
