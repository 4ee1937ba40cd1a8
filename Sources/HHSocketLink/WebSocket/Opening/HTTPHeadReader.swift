// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// Finds where the heads of a byte stream end, however the stream was split, within a limit on all of them together.
package struct HTTPHeadReader<Failure: HTTPHeadFailure>: Sendable {
    package enum Kind: Hashable, Sendable {
        case request
        case response
    }

    private let kind: Kind
    /// The bytes that do not belong to an earlier head.
    private var unread = ByteBuffer()
    /// The number of bytes that more heads may have.
    private var room = HTTPSyntax.maximumHeadLength
    /// The number of unread bytes that were searched.
    private var searched = 0
    /// The offset at which the line begins that is being searched for its end.
    private var lineStart = 0

    package init(_ kind: Kind) {
        self.kind = kind
    }

    /// Adds bytes. They are copied only if unread ones precede them.
    package mutating func append(_ bytes: ByteBuffer) {
        if self.unread.readableBytes == 0 {
            self.unread = bytes
        } else {
            self.unread.writeImmutableBuffer(bytes)
        }
    }

    /// The memory of the bytes that do not belong to an earlier head: the whole buffers of their reads.
    var heldBytes: Int { self.unread.storageCapacity }

    /// Removes the bytes after the heads.
    mutating func takeRest() -> ByteBuffer {
        let rest = self.unread
        self.unread = ByteBuffer()
        return rest
    }

    /// Returns the next head; nil if it is incomplete.
    package mutating func next() throws(Failure) -> HTTPHead? {
        guard let bytes = try self.nextBytes() else { return nil }
        do throws(HTTPHeadFault) {
            return try HTTPHead(bytes)
        } catch {
            throw .malformedHead(error)
        }
    }

    /// Returns the bytes of the next head, with the empty line at its end; nil if it is incomplete.
    private mutating func nextBytes() throws(Failure) -> ByteBuffer? {
        while true {
            let view = self.unread.readableBytesView.prefix(self.room)
            if self.lineStart == 0, !self.isPlausible(view) { throw .notHTTP }
            guard let end = view.dropFirst(self.searched).firstIndex(of: HTTPSyntax.lineFeed) else {
                self.searched = view.count
                guard view.count < self.room else { throw .headTooLong }
                return nil
            }
            let line = view[view.startIndex.advanced(by: self.lineStart)..<end]
            self.searched = end - view.startIndex + 1
            guard line.isEmpty || (line.count == 1 && line.first == HTTPSyntax.carriageReturn) else {
                self.lineStart = self.searched
                continue
            }
            let isBlankStart = self.lineStart == 0
            let head = self.take(self.searched)
            // An old client may have sent an empty line before the request (RFC 9112, section 2.2). A response that
            // begins with one is not HTTP.
            if isBlankStart { continue }
            return head
        }
    }

    private mutating func take(_ length: Int) -> ByteBuffer? {
        self.room -= length
        self.searched = 0
        self.lineStart = 0
        let head = self.unread.readSlice(length: length)
        // The buffer of the read is released with the head.
        if self.unread.readableBytes == 0 { self.unread = ByteBuffer() }
        return head
    }

    /// Whether the first bytes may be those of HTTP: a peer of another protocol may never end a line.
    private func isPlausible(_ view: ByteBufferView) -> Bool {
        switch self.kind {
        case .request:
            guard let first = view.first, first != HTTPSyntax.carriageReturn, first != HTTPSyntax.lineFeed else {
                return true
            }
            return HTTPSyntax.isTokenByte(first)
        case .response: return zip(view, "HTTP/".utf8).allSatisfy { $0 == $1 }
        }
    }
}
