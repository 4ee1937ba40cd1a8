// SPDX-License-Identifier: Apache-2.0
import HHSocket
package import NIOCore

/// Decodes the bytes of a connection into frames. The frames do not depend on how the bytes are split.
///
/// It serves both sides. A client's decoder learns the version from `CONNECTED`, for everything that follows in the
/// same read; a server's is set by ``agree(on:)``, before the next frame is taken.
///
/// Each byte is searched once, a body with `content-length` not at all. The memory held is that of the bytes that were
/// received and not returned.
package struct STOMPDecoder: Sendable {
    /// The length of a frame up to which headers and body are copied together, in bytes.
    private static let smallLength = 4_096

    /// A frame whose body has not arrived yet.
    private struct Head: Sendable {
        var command: STOMPCommand
        var fields: [STOMPHeaders.Field]
        var length: Int
        var escapes: STOMPEscapes?
        var contentLength: Int?
        var mayHaveBody: Bool
        /// The version that the frame announces.
        var version: STOMPVersion?
    }

    /// The version in which frames are read; nil before it is agreed on.
    package private(set) var version: STOMPVersion?
    private let limits: STOMPLimits
    /// Bytes from the beginning of a frame.
    private var input = ByteBuffer()
    /// Bytes behind the frame that ``input`` completes. Empty unless ``input`` contains bytes.
    private var behind = ByteBuffer()
    private var reader = STOMPHeadReader()
    private var head: Head?
    /// The number of bytes of the input in which the end of a body without `content-length` was searched.
    private var searched = 0
    private var failure: STOMPViolation?

    package init(limits: STOMPLimits = STOMPLimits()) {
        self.limits = limits.bounded
    }

    /// The number of bytes that were received and not returned.
    package var bufferedBytes: Int { self.input.readableBytes + self.behind.readableBytes }

    /// The memory held for them, in bytes: the whole buffers of reads that were not consumed completely.
    var heldBytes: Int { self.input.unreadCapacity + self.behind.unreadCapacity }

    /// The number of received bytes of a frame that are not searched again.
    var searchedBytes: Int { self.head == nil ? self.reader.searched : self.searched }

    /// Reads the frames that follow in this version.
    package mutating func agree(on version: STOMPVersion) {
        self.version = version
    }

    package mutating func append(_ bytes: consuming ByteBuffer) {
        guard self.failure == nil, bytes.readableBytes > 0 else { return }
        guard self.input.readableBytes > 0 else {
            self.input = bytes
            return
        }
        guard self.behind.readableBytes == 0 else {
            self.behind.writeImmutableBuffer(bytes)
            return
        }
        if let missing = self.missingBytes, bytes.readableBytes > missing {
            // Bytes after a body are not copied into the buffer in which the body is assembled.
            guard let end = bytes.readSlice(length: missing) else { return }
            self.input.writeImmutableBuffer(end)
            self.behind = bytes
            return
        }
        // Makes no room by copying bytes that have been returned.
        if self.input.readerIndex >= self.input.readableBytes { self.input.discardReadBytes() }
        self.input.writeImmutableBuffer(bytes)
    }

    /// The number of bytes up to the end of a body with `content-length`.
    private var missingBytes: Int? {
        guard let head = self.head, let contentLength = head.contentLength else { return nil }
        return max(0, head.length + contentLength + 1 - self.input.readableBytes)
    }

    /// The next frame; nil where more bytes are needed.
    ///
    /// - Throws: ``STOMPViolation``, once all frames before have been returned, and from then on every time.
    package mutating func next() throws(STOMPViolation) -> STOMPFrame? {
        if let failure = self.failure { throw failure }
        do throws(STOMPViolation) {
            if self.head == nil { self.head = try self.readHead() }
            guard let head = self.head, let bodyLength = try self.bodyLength(head) else { return nil }
            return self.take(head, bodyLength: bodyLength)
        } catch {
            self.failure = error
            self.dropInput()
            throw error
        }
    }

    /// Frees everything held, since nothing that follows is read.
    mutating func dropInput() {
        self.input = ByteBuffer()
        self.behind = ByteBuffer()
        self.head = nil
        self.reader = STOMPHeadReader()
    }

    // MARK: Head

    private mutating func readHead() throws(STOMPViolation) -> Head? {
        if !self.reader.hasBegun { self.skipEndsOfLines() }
        guard self.input.readableBytes > 0, self.reader.hasBegun || !self.mayBeEndOfLine else { return nil }
        let input = self.input
        let isComplete = try input.withUnsafeReadableBytes { bytes throws(STOMPViolation) in
            try self.reader.read(bytes, version: self.version, limits: self.limits)
        }
        guard isComplete, let command = self.reader.command else { return nil }
        let headers = STOMPHeaders(bytes: self.input, fields: self.reader.fields)
        let announced = try Self.announcedVersion(command, headers)
        let version = self.version ?? announced
        let head = Head(
            command: command,
            fields: self.reader.fields,
            length: self.reader.length,
            escapes: self.reader.hasEscapes ? STOMPEscapes(self.version, of: command) : nil,
            contentLength: try self.contentLength(of: command, headers: headers, version: version),
            mayHaveBody: command.mayHaveBody(in: version),
            version: announced
        )
        self.reader = STOMPHeadReader()
        self.searched = head.length
        return head
    }

    private mutating func skipEndsOfLines() {
        while let byte = self.input.getInteger(at: self.input.readerIndex, as: UInt8.self) {
            if byte == UInt8(ascii: "\n") {
                self.input.moveReaderIndex(forwardBy: 1)
            } else if byte == UInt8(ascii: "\r"), self.input.readableBytes > 1,
                self.input.getInteger(at: self.input.readerIndex + 1, as: UInt8.self) == UInt8(ascii: "\n")
            {
                self.input.moveReaderIndex(forwardBy: 2)
            } else {
                return
            }
        }
        self.releaseInputIfEmpty()
    }

    /// Whether the input ends with a CR.
    private var mayBeEndOfLine: Bool {
        self.input.readableBytes == 1
            && self.input.getInteger(at: self.input.readerIndex, as: UInt8.self) == UInt8(ascii: "\r")
    }

    /// The version that a server selects by `CONNECTED`: without the header it is 1.0.
    private static func announcedVersion(
        _ command: STOMPCommand,
        _ headers: STOMPHeaders
    ) throws(STOMPViolation) -> STOMPVersion? {
        guard command == .connected else { return nil }
        guard let value = headers.bytes(of: "version") else { return .v1_0 }
        guard let version = STOMPVersion(rawValue: String(decoding: value, as: UTF8.self)) else {
            throw .version(value)
        }
        return version
    }

    private func contentLength(
        of command: STOMPCommand,
        headers: STOMPHeaders,
        version: STOMPVersion?
    ) throws(STOMPViolation) -> Int? {
        guard let value = headers.bytes(of: "content-length") else { return nil }
        guard let length = STOMPNumber.read(value) else { throw .contentLength(value) }
        if length > 0, let version, !command.mayHaveBody(in: version) { throw .body(command, version) }
        guard length <= self.limits.maximumBodyLength else { throw .bodyTooLong(length, self.limits) }
        return length
    }

    // MARK: Body

    /// The length of the body; nil if its end has not arrived.
    private mutating func bodyLength(_ head: Head) throws(STOMPViolation) -> Int? {
        let available = self.input.readableBytes - head.length
        guard available > 0 else { return nil }
        if let length = head.contentLength {
            guard available > length,
                let end = self.input.getInteger(at: self.input.readerIndex + head.length + length, as: UInt8.self)
            else { return nil }
            guard end == 0 else { throw .end(length: length, end) }
            return length
        }
        if !head.mayHaveBody, let version = self.version ?? head.version,
            self.input.getInteger(at: self.input.readerIndex + head.length, as: UInt8.self) != 0
        {
            throw .body(head.command, version)
        }
        let limit = self.limits.maximumBodyLength
        // No byte beyond the limit is examined.
        let end = available > limit ? head.length + limit + 1 : self.input.readableBytes
        let nul = self.input.withUnsafeReadableBytes { bytes in
            UnsafeRawBufferPointer(rebasing: bytes[..<end]).firstIndex(of: 0, from: self.searched)
        }
        if let nul { return nul - head.length }
        self.searched = end
        if available > limit { throw .bodyTooLong(nil, self.limits) }
        return nil
    }

    private mutating func take(_ head: Head, bodyLength: Int) -> STOMPFrame {
        let (headers, body) = self.parts(head, bodyLength)
        self.input.moveReaderIndex(forwardBy: head.length + bodyLength + 1)
        self.releaseInputIfEmpty()
        self.head = nil
        if self.version == nil { self.version = head.version }
        return STOMPFrame(head.command, headers, body: body)
    }

    /// The headers and the body in separate memory, unless the body is a large part of the memory it shares: a kept
    /// frame must not keep a whole read alive, and kept headers must not keep a body alive.
    private func parts(_ head: Head, _ bodyLength: Int) -> (STOMPHeaders, ByteBuffer) {
        let start = self.input.readerIndex
        let isShared = bodyLength > 0 && bodyLength >= self.input.capacity / 4
        if !isShared, head.escapes == nil, head.length + bodyLength <= Self.smallLength {
            let copy = self.input.copy(at: start, length: head.length + bodyLength)
            let block = copy.getSlice(at: 0, length: head.length) ?? ByteBuffer()
            let body = bodyLength == 0 ? nil : copy.getSlice(at: head.length, length: bodyLength)
            return (STOMPHeaders(bytes: block, fields: head.fields), body ?? ByteBuffer())
        }
        let block = self.input.getSlice(at: start, length: head.length) ?? ByteBuffer()
        let headers =
            head.escapes?.unescaped(block, head.fields)
            ?? STOMPHeaders(bytes: self.input.copy(at: start, length: head.length), fields: head.fields)
        guard isShared else {
            return (headers, self.input.copy(at: start + head.length, length: bodyLength))
        }
        return (headers, self.input.getSlice(at: start + head.length, length: bodyLength) ?? ByteBuffer())
    }

    private mutating func releaseInputIfEmpty() {
        guard self.input.readableBytes == 0 else { return }
        self.input = self.behind
        self.behind = ByteBuffer()
    }
}

extension ByteBuffer {
    /// Returns a copy of bytes.
    fileprivate func copy(at index: Int, length: Int) -> ByteBuffer {
        guard length > 0, let view = self.viewBytes(at: index, length: length) else { return ByteBuffer() }
        return ByteBuffer(bytes: view)
    }
}
