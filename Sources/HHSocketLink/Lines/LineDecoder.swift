// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// Decodes the bytes of a connection into lines, however they are split.
///
/// Each byte is searched once. The memory used is that of the received bytes that were not returned.
package struct LineDecoder: Sendable {
    /// The longest line that is received by default, in bytes: 1 MiB.
    package static let defaultMaximumLength = 1 << 20

    /// A line that is longer than the limit. No part of it is returned.
    package struct TooLong: Error, Hashable, CustomStringConvertible {
        package var limit: Int

        package var description: String {
            "more than \(self.limit) bytes arrived without the end of a line (maximumLineLength)"
        }
    }

    private let delimiter: LineDelimiter
    private let maximumLength: Int
    private var input = ByteBuffer()
    /// The number of bytes of the input that have no delimiter's end.
    private var searched = 0
    private var failure: TooLong?

    package init(delimiter: LineDelimiter, maximumLength: Int = Self.defaultMaximumLength) {
        self.delimiter = delimiter
        self.maximumLength = max(0, maximumLength)
    }

    /// The number of received bytes that were not returned.
    package var bufferedBytes: Int { self.input.readableBytes }

    /// The memory held for them, in bytes: the whole buffer of a read that was not consumed completely.
    package var heldBytes: Int { self.input.unreadCapacity }

    /// The number of bytes of the incomplete line; 0 also while complete lines remain to be returned.
    package var unfinishedBytes: Int { self.searched == self.input.readableBytes ? self.searched : 0 }

    package mutating func append(_ bytes: consuming ByteBuffer) {
        guard self.failure == nil else { return }
        guard self.input.readableBytes > 0 else {
            self.input = bytes
            return
        }
        // Discarded, so that the buffer does not grow by copying returned bytes.
        if self.input.readerIndex >= self.input.readableBytes { self.input.discardReadBytes() }
        self.input.writeImmutableBuffer(bytes)
    }

    /// The next line, without its delimiter; nil where more bytes are needed.
    ///
    /// - Throws: ``TooLong``, once all lines before have been returned, and from then on every time.
    package mutating func next() throws(TooLong) -> ByteBuffer? {
        guard let (length, end) = try self.find() else { return nil }
        return self.take(length, end: end)
    }

    /// The next line, including its delimiter.
    package mutating func nextWithDelimiter() throws(TooLong) -> ByteBuffer? {
        guard let (_, end) = try self.find() else { return nil }
        return self.take(end, end: end)
    }

    /// The length of the next line, and where its delimiter ends.
    private mutating func find() throws(TooLong) -> (length: Int, end: Int)? {
        if let failure = self.failure { throw failure }
        guard self.searched < self.input.readableBytes else { return nil }
        guard let end = self.input.withUnsafeReadableBytes({ self.delimiter.end(in: $0, from: self.searched) }) else {
            self.searched = self.input.readableBytes
            if self.isTooLong { throw self.fail() }
            return nil
        }
        let length = self.lineLength(end: end)
        guard length <= self.maximumLength else { throw self.fail() }
        return (length, end)
    }

    /// Takes the first bytes of the input.
    ///
    /// - Parameter end: The number of bytes that are removed with them.
    private mutating func take(_ length: Int, end: Int) -> ByteBuffer? {
        let line = self.input.getSlice(at: self.input.readerIndex, length: length).map(\.detached)
        self.input.moveReaderIndex(forwardBy: end)
        self.searched = 0
        if self.input.readableBytes == 0 { self.input = ByteBuffer() }
        return line
    }

    private func lineLength(end: Int) -> Int {
        let length = end - self.delimiter.bytes.count
        guard self.delimiter.dropsCR, length > 0,
            self.input.getInteger(at: self.input.readerIndex + length - 1, as: UInt8.self) == 0x0D
        else { return length }
        return length - 1
    }

    /// Whether the line can no longer end within the limit.
    private var isTooLong: Bool {
        guard self.searched > self.maximumLength else { return false }
        let unfinished = self.input.withUnsafeReadableBytes { self.delimiter.unfinishedLength(atEndOf: $0) }
        return self.searched - unfinished > self.maximumLength
    }

    private mutating func fail() -> TooLong {
        let failure = TooLong(limit: self.maximumLength)
        self.failure = failure
        self.dropInput()
        return failure
    }

    /// Frees everything held, since nothing that follows is read.
    mutating func dropInput() {
        self.input = ByteBuffer()
        self.searched = 0
    }
}
