// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage
package import NIOCore

/// A message, a part of one, or a control frame that has arrived.
package enum WebSocketInput: Hashable, Sendable {
    /// A complete message; text has been checked.
    case message(WebSocketMessageKind, ByteBuffer)
    /// The next bytes of a stream of binary messages.
    case bytes(ByteBuffer)
    case ping(ByteBuffer)
    case pong(ByteBuffer)
    /// The peer's close frame. Nothing follows.
    case close(WebSocketClose)
}

/// Decodes the bytes of a connection into messages, or into the stream of bytes that its binary messages carry.
///
/// It enforces every MUST of RFC 6455. Everything before a violation is returned first; from then on each call throws
/// the same violation.
///
/// A few compressed bytes may expand to many, and inflating them takes time: with a budget (``inflatedBudget``)
/// ``next()`` returns nil although there is more to do, as ``hasMoreWork`` says, until ``resumeWork()`` renews the
/// budget. Bytes that arrive meanwhile are kept.
///
/// Copies share the state of the decompression, so only one of them may continue to decode.
package struct WebSocketDecoder: Sendable {
    package enum Mode: Hashable, Sendable {
        /// Complete messages, up to a limit.
        case messages(WebSocketLimits)
        /// Bytes as they arrive; where a message ends means nothing, and text is a violation.
        case stream
    }

    /// A message that is not finished.
    private struct Unfinished {
        var kind: WebSocketMessageKind
        var isCompressed: Bool
        var fragments = 0
        /// The length that the headers so far announce, in bytes. Not counted if the message is compressed.
        var length = 0
        /// Unmasked bytes of a compressed message that the inflater has not consumed yet.
        var compressed = ByteBuffer()
        /// The bytes to return, inflated if the message is compressed.
        var body = ByteBuffer()
        var validator = UTF8Validator()

        /// Checks the body from `start` on, if the message is text.
        mutating func isText(from start: Int, isWhole: Bool) -> Bool {
            guard self.kind == .text else { return true }
            let isValid = self.body.withUnsafeReadableBytes {
                self.validator.append(UnsafeRawBufferPointer(rebasing: $0[start...]))
            }
            return isValid && (!isWhole || self.validator.isComplete)
        }
    }

    /// The largest payload that is copied out of the read's buffer, in bytes, so that a small message kept for long
    /// does not retain the whole buffer.
    static let copyLimit = 1_024
    /// The size of the blocks into which small messages of one read are copied, in bytes: a message kept for long
    /// retains its block.
    private static let blockLength = 1_024
    /// The largest number of messages that are copied into a block.
    private static let blockCount = 64
    /// The longest piece of a stream into which messages are joined, in bytes.
    private static let joinedLength = 256 << 10
    /// The capacity that is reserved at the beginning of a long message, if a quarter of it has arrived.
    private static let reservedLength = 256 << 10
    /// The number of compressed bytes that are unmasked at once.
    private static let compressedSlice = 16_384
    /// The number of bytes after which inflating pauses: to check text, or to return the bytes of a stream.
    private static let inflatedSlice = 65_536
    /// The number of bytes that a connection inflates at once, which takes one or two milliseconds; the other
    /// connections of its thread have their turn before it continues.
    package static let inflatedPerTurn = 256 << 10

    /// The reason for the end of a call to `inflate`.
    private enum Pause {
        /// There is a slice of output, and more may follow from the same input.
        case slice
        /// The budget has been spent.
        case budget
        /// The frame continues in the next read.
        case input
        /// The whole frame has been inflated, and the message continues.
        case frame
        /// All of the message has been inflated.
        case message
    }

    private let isMasked: Bool
    private let mode: Mode
    /// The parameters of the peer's messages; nil if they may not be compressed.
    private let compression: DeflateDirection?
    /// Whether a stream may also arrive in text messages, whose bytes are not checked.
    private let acceptsText: Bool
    /// Memory for unmasked bytes.
    private let buffers: BufferPool
    /// The account that is charged for zlib's memory.
    private let account: (any LinkAccount)?
    /// Nil before the first compressed message.
    private var inflater: WebSocketInflater?
    private var input = ByteBuffer()
    /// The unmasked payloads of the small messages that are next in `input`, in the order of their frames.
    private var block = ByteBuffer()
    /// The header of the frame whose payload is next; its length is that of the remaining payload.
    private var frame: WebSocketFrameHeader?
    /// Whether the frame has the largest length of our messages, so that the stream continues in the next one.
    private var isCut = false
    private var message: Unfinished?
    private var failure: WebSocketViolation?
    private var isClosed = false
    /// The number of bytes that may be inflated from one ``resumeWork()`` to the next.
    private let inflatedBudget: Int
    /// The rest of it.
    private var inflatedLeft: Int
    /// Whether ``next()`` has returned nil although the received bytes may contain more, because the budget is spent.
    package private(set) var hasMoreWork = false

    /// - Parameters:
    ///   - role: Our side.
    ///   - mode: The form in which messages are returned, and their limits.
    ///   - acceptsText: Whether a stream may also arrive in text messages, whose bytes are not checked; false by
    ///     default.
    ///   - deflate: The agreement on compression, if there is one.
    ///   - buffers: Memory for unmasked bytes; by default its own.
    ///   - inflatedBudget: The number of bytes that may be inflated from one ``resumeWork()`` to the next; no limit by
    ///     default.
    ///   - account: The account that is charged for the memory of decompression; nil at a client.
    package init(
        role: WebSocketRole,
        mode: Mode,
        acceptsText: Bool = false,
        deflate: DeflateAgreement? = nil,
        buffers: BufferPool = BufferPool(),
        inflatedBudget: Int = .max,
        account: (any LinkAccount)?
    ) {
        self.account = account
        self.inflatedBudget = max(inflatedBudget, 1)
        self.inflatedLeft = self.inflatedBudget
        self.isMasked = role == .server
        self.mode = mode
        self.acceptsText = acceptsText
        self.buffers = buffers
        self.compression = deflate?.direction(from: role == .server ? .client : .server)
    }

    /// The number of bytes held that have not been returned: inflated ones, and compressed ones still to be inflated.
    package var bufferedBytes: Int {
        guard let message = self.message else { return self.input.readableBytes }
        return self.input.readableBytes + message.compressed.readableBytes + message.body.readableBytes
    }

    /// The memory held for them, in bytes: the whole buffer of a read that was not consumed completely, and what was
    /// touched of the memory that is reserved for a message in parts.
    var heldBytes: Int {
        let held = self.input.storageCapacity + self.block.storageCapacity
        guard let message = self.message else { return held }
        let body = ByteBuffer.growing(capacity: message.body.storageCapacity, writtenTo: message.body.writerIndex)
        return held + message.compressed.storageCapacity + body
    }

    /// Whether memory is allocated for the decompression of messages.
    var holdsContext: Bool { self.inflater?.isAllocated == true }

    /// Frees the memory for decompression between messages, unless it was used since the last call.
    mutating func releaseContextUnlessUsed() { self.inflater?.releaseUnlessUsed() }

    /// Appends the bytes of a read.
    package mutating func append(_ bytes: consuming ByteBuffer) {
        guard self.failure == nil, !self.isClosed else { return }
        if self.input.readableBytes == 0 {
            self.input = bytes
        } else {
            // Usually an incomplete header.
            self.input.discardReadBytes()
            self.input.writeBuffer(&bytes)
        }
    }

    /// Renews the budget for inflating.
    package mutating func resumeWork() {
        self.inflatedLeft = self.inflatedBudget
        self.hasMoreWork = false
    }

    /// Returns the next received unit; nil if more bytes are needed, if ``hasMoreWork`` is true, and after the peer's
    /// close frame.
    package mutating func next() throws(WebSocketViolation) -> WebSocketInput? {
        if let failure = self.failure { throw failure }
        guard !self.isClosed, !self.hasMoreWork else { return nil }
        do throws(WebSocketViolation) {
            let input = try self.find()
            if input == nil, !self.hasMoreWork { self.finishRead() }
            return input
        } catch {
            self.fail(error)
            throw error
        }
    }

    /// Records that more bytes are needed. Releases the storage of the read, so that it can be reused for the next one:
    /// the rest is a part of a header or of a control frame.
    private mutating func finishRead() {
        if self.message == nil { self.inflater?.releaseIfIdle() }
        if self.block.capacity > 0 { self.block = ByteBuffer() }
        if self.input.readableBytes == 0 {
            self.input = ByteBuffer()
        } else if self.input.capacity > Self.copyLimit {
            self.input = ByteBuffer(bytes: self.input.readableBytesView)
        }
    }

    private mutating func fail(_ failure: WebSocketViolation) {
        self.failure = failure
        self.dropInput()
    }

    /// Frees everything held, since nothing that follows is read.
    mutating func dropInput() {
        self.hasMoreWork = false
        self.input = ByteBuffer()
        self.block = ByteBuffer()
        self.message = nil
        self.inflater = nil
    }

    private mutating func find() throws(WebSocketViolation) -> WebSocketInput? {
        while true {
            if self.frame == nil {
                guard let header = try self.readHeader() else { return nil }
                if case .messages(let limits) = self.mode, self.message == nil,
                    Self.isWhole(header, within: limits, self.input.readableBytes)
                {
                    return try self.message(header, limits)
                }
                try self.begin(header)
                self.frame = header
            }
            guard let frame = self.frame else { return nil }
            if frame.opcode.isControl { return try self.control(frame) }
            let isCompressed = self.message?.isCompressed == true
            switch self.mode {
            case .stream:
                if isCompressed {
                    if let bytes = try self.inflatedStream() { return .bytes(bytes) }
                } else if self.isMasked || (self.isCut && self.input.readableBytes > frame.length) {
                    if let bytes = try self.joined() { return .bytes(bytes) }
                    // Only empty messages preceded a frame of another kind.
                    if let next = self.frame, next.opcode.isControl || self.message?.isCompressed == true { continue }
                } else if let bytes = self.streamed(frame) {
                    return .bytes(bytes)
                }
            case .messages(let limits):
                let message =
                    isCompressed
                    ? try self.inflatedMessage(limit: limits.maximumMessageLength)
                    : try self.whole(frame)
                if let message { return message }
            }
            // The frame continues in the next read.
            if self.frame != nil { return nil }
        }
    }

    private mutating func readHeader() throws(WebSocketViolation) -> WebSocketFrameHeader? {
        let (isMasked, allowsCompression) = (self.isMasked, self.compression != nil)
        let found = try self.input.withUnsafeReadableBytes { bytes throws(WebSocketViolation) in
            try WebSocketFrameHeader.read(bytes, isMasked: isMasked, allowsCompression: allowsCompression)
        }
        guard let found else { return nil }
        self.input.moveReaderIndex(forwardBy: found.size)
        return found.header
    }

    /// Checks that a frame is allowed now, and its length.
    private mutating func begin(_ header: WebSocketFrameHeader) throws(WebSocketViolation) {
        switch header.opcode {
        case .close, .ping, .pong:
            return
        case .continuation:
            guard self.message != nil else { throw .strayContinuation }
        case .text, .binary:
            guard self.message == nil else { throw .interruptedMessage }
            if header.opcode == .text, self.mode == .stream, !self.acceptsText { throw .unexpectedText }
            self.message = Unfinished(
                kind: header.opcode == .text ? .text : .binary,
                isCompressed: header.isCompressed
            )
        }
        self.isCut = header.length == WebSocketEncoder.maximumStreamMessageLength
        guard case .messages(let limits) = self.mode, var message = self.message.take() else { return }
        defer { self.message = message }
        message.fragments += 1
        guard message.fragments <= limits.maximumFragments else {
            throw .tooManyFragments(limit: limits.maximumFragments)
        }
        // The length of a compressed message is only known when it is inflated.
        guard !message.isCompressed else { return }
        guard header.length <= limits.maximumMessageLength - message.length else {
            let length = UInt64(message.length).addingReportingOverflow(UInt64(header.length)).partialValue
            throw .messageTooLong(length: length, limit: limits.maximumMessageLength)
        }
        message.length += header.length
    }

    // MARK: Payloads

    private mutating func control(_ frame: WebSocketFrameHeader) throws(WebSocketViolation) -> WebSocketInput? {
        guard self.input.readableBytes >= frame.length else { return nil }
        self.frame = nil
        let payload = self.take(frame)
        switch frame.opcode {
        case .ping: return .ping(payload)
        case .pong: return .pong(payload)
        default:
            let close = try WebSocketClose(payload)
            self.isClosed = true
            self.dropInput()
            return .close(close)
        }
    }

    /// The available bytes of the frame; nil if there are none.
    private mutating func streamed(_ frame: WebSocketFrameHeader) -> ByteBuffer? {
        var part = frame
        part.length = min(frame.length, self.input.readableBytes)
        let bytes = part.length > 0 ? self.take(part, rest: frame.length - part.length) : nil
        if frame.length == part.length { self.end(frame) }
        return bytes
    }

    /// The available bytes of messages, up to a control frame; nil if there are none. Unmasked messages are joined only
    /// if they were divided.
    ///
    /// Masked messages are copied when they are unmasked, so joining them costs nothing. And the reader of the stream
    /// need not join messages, which costs more than a copy.
    private mutating func joined() throws(WebSocketViolation) -> ByteBuffer? {
        var bytes = self.buffers.take(capacity: min(self.input.readableBytes, Self.joinedLength))
        do throws(WebSocketViolation) {
            while var frame = self.frame, !frame.opcode.isControl, self.message?.isCompressed != true {
                let length = min(frame.length, self.input.readableBytes, Self.joinedLength - bytes.readableBytes)
                self.move(length, of: &frame, to: &bytes)
                self.frame = frame
                guard frame.length == 0 else { break }
                self.end(frame)
                guard self.isMasked || self.isCut else { break }
                guard let header = try self.readHeader() else { break }
                try self.begin(header)
                self.frame = header
            }
        } catch {
            guard bytes.readableBytes > 0 else { throw error }
            // The next call throws it.
            self.fail(error)
        }
        guard bytes.readableBytes > 0 else { return nil }
        self.buffers.put(bytes)
        return bytes
    }

    /// Moves bytes of a payload from the input to `bytes`, unmasked. Afterwards the frame describes the remaining
    /// payload.
    private mutating func move(_ length: Int, of frame: inout WebSocketFrameHeader, to bytes: inout ByteBuffer) {
        guard length > 0 else { return }
        self.input.readWithUnsafeReadableBytes { source in
            let payload = UnsafeRawBufferPointer(rebasing: source[..<length])
            if var mask = frame.mask {
                bytes.write(payload, &mask)
                frame.mask = mask
            } else {
                bytes.writeBytes(payload)
            }
            return length
        }
        frame.length -= length
    }

    private mutating func end(_ frame: WebSocketFrameHeader) {
        self.frame = nil
        if frame.isFinal { self.message = nil }
    }

    /// Whether a frame is a complete message of an allowed length that has arrived completely, like almost all.
    @inline(__always)
    private static func isWhole(
        _ header: WebSocketFrameHeader,
        within limits: WebSocketLimits,
        _ availableBytes: Int
    ) -> Bool {
        header.isFinal && (header.opcode == .binary || header.opcode == .text) && !header.isCompressed
            && header.length <= availableBytes && header.length <= limits.maximumMessageLength
            && limits.maximumFragments > 0
    }

    /// The message that follows the header.
    private mutating func message(
        _ header: WebSocketFrameHeader,
        _ limits: WebSocketLimits
    ) throws(WebSocketViolation) -> WebSocketInput {
        // An empty message takes nothing from the block, which each would fill again, reading ahead again and again.
        let payload = header.length > 0 ? self.wholePayload(header, limits) : ByteBuffer()
        guard header.opcode == .text else { return .message(.binary, payload) }
        guard payload.isUTF8 else { throw .textNotUTF8 }
        return .message(.text, payload)
    }

    /// The payload of a message that is not empty and has arrived completely.
    @inline(__always)
    private mutating func wholePayload(_ header: WebSocketFrameHeader, _ limits: WebSocketLimits) -> ByteBuffer {
        if header.length <= Self.copyLimit {
            if self.block.readableBytes == 0 { self.fillBlock(header, limits) }
            self.input.moveReaderIndex(forwardBy: header.length)
            return self.block.readSlice(length: header.length) ?? ByteBuffer()
        }
        guard header.mask != nil else { return self.input.readSlice(length: header.length) ?? ByteBuffer() }
        var frame = header
        var payload = self.buffers.take(capacity: header.length, excess: 2)
        self.move(header.length, of: &frame, to: &payload)
        self.buffers.put(payload)
        return payload
    }

    /// Unmasks the available small messages, the first of which has this header and is not empty: many share an
    /// allocation. No header is read twice here, since the next call is for a message after all of these.
    private mutating func fillBlock(_ first: WebSocketFrameHeader, _ limits: WebSocketLimits) {
        let (isMasked, allowsCompression) = (self.isMasked, self.compression != nil)
        var block = ByteBufferAllocator().buffer(capacity: min(Self.blockLength, self.input.readableBytes))
        self.input.withUnsafeReadableBytes { bytes in
            _ = block.writeWithUnsafeMutableBytes(minimumWritableBytes: 0) { target in
                var (header, index, count, messages) = (first, 0, 0, 0)
                while true {
                    let payload = UnsafeRawBufferPointer(rebasing: bytes[index..<index + header.length])
                    let space = UnsafeMutableRawBufferPointer(rebasing: target[count..<count + header.length])
                    if var mask = header.mask { mask.copy(payload, to: space) } else { space.copyMemory(from: payload) }
                    index += header.length
                    count += header.length
                    messages += 1
                    let rest = UnsafeRawBufferPointer(rebasing: bytes[index...])
                    guard messages < Self.blockCount,
                        let next = try? WebSocketFrameHeader.read(
                            rest,
                            isMasked: isMasked,
                            allowsCompression: allowsCompression
                        ),
                        Self.isWhole(next.header, within: limits, rest.count - next.size),
                        next.header.length <= Self.blockLength - count
                    else { return count }
                    header = next.header
                    index += next.size
                }
            }
        }
        self.block = block.detached
    }

    /// Appends the available bytes of the frame to its message, and returns the message if it is complete.
    private mutating func whole(_ frame: WebSocketFrameHeader) throws(WebSocketViolation) -> WebSocketInput? {
        guard var message = self.message.take() else { return nil }
        let available = min(frame.length, self.input.readableBytes)
        let isWhole = available == frame.length
        let start = message.body.readableBytes
        if frame.mask != nil {
            var rest = frame
            if available >= frame.length / 4 {
                message.body.reserveCapacity(minimumWritableBytes: min(frame.length, Self.reservedLength))
            }
            self.move(available, of: &rest, to: &message.body)
            self.frame = rest
        } else {
            var part = frame
            part.length = available
            var piece = self.take(part, rest: frame.length - available)
            if start == 0 { message.body = piece } else { message.body.writeBuffer(&piece) }
        }
        guard message.isText(from: start, isWhole: isWhole && frame.isFinal) else { throw .textNotUTF8 }
        guard isWhole else {
            self.message = message
            return nil
        }
        self.frame = nil
        guard frame.isFinal else {
            self.message = message
            return nil
        }
        return .message(message.kind, message.body.detached)
    }

    /// Removes bytes of a payload from the input, unmasked. Afterwards `frame` describes the remaining payload, if any.
    private mutating func take(_ part: WebSocketFrameHeader, rest: Int = 0) -> ByteBuffer {
        var bytes = ByteBuffer()
        if var mask = part.mask {
            if part.length > 0 {
                bytes.reserveCapacity(part.length)
                self.input.readWithUnsafeReadableBytes { source in
                    bytes.write(UnsafeRawBufferPointer(rebasing: source[..<part.length]), &mask)
                    return part.length
                }
            }
            self.frame?.mask = mask
        } else if part.length > Self.copyLimit {
            bytes = self.input.readSlice(length: part.length) ?? bytes
        } else if part.length > 0 {
            bytes.reserveCapacity(part.length)
            self.input.readWithUnsafeReadableBytes { source in
                bytes.writeBytes(UnsafeRawBufferPointer(rebasing: source[..<part.length]))
                return part.length
            }
        }
        self.frame?.length = rest
        return bytes
    }

    // MARK: Compressed messages

    /// The next bytes of a compressed message; nil if there are none yet.
    private mutating func inflatedStream() throws(WebSocketViolation) -> ByteBuffer? {
        guard var message = self.message.take() else { return nil }
        do throws(WebSocketViolation) {
            switch try self.inflate(&message, limit: .max) {
            case .slice, .input, .budget: break
            case .frame: self.frame = nil
            case .message:
                self.frame = nil
                return message.body.readableBytes > 0 ? message.body : nil
            }
        } catch {
            guard message.body.readableBytes > 0 else { throw error }
            // The next call throws it.
            self.fail(error)
            return message.body
        }
        let bytes = message.body
        message.body = ByteBuffer()
        self.message = message
        return bytes.readableBytes > 0 ? bytes : nil
    }

    /// Inflates the available part of a frame, and returns its message if that is complete.
    private mutating func inflatedMessage(limit: Int) throws(WebSocketViolation) -> WebSocketInput? {
        guard var message = self.message.take() else { return nil }
        while true {
            switch try self.inflateChecked(&message, limit: limit) {
            case .slice:
                continue
            case .input, .budget:
                self.message = message
                return nil
            case .frame:
                self.frame = nil
                self.message = message
                return nil
            case .message:
                self.frame = nil
                guard message.kind != .text || message.validator.isComplete else { throw .textNotUTF8 }
                return .message(message.kind, message.body.detached)
            }
        }
    }

    /// Inflates up to a slice, and checks it if it is text: before a later fault is reported, so that the result does
    /// not depend on how the bytes are split.
    private mutating func inflateChecked(
        _ message: inout Unfinished,
        limit: Int
    ) throws(WebSocketViolation) -> Pause {
        let start = message.body.readableBytes
        var pause = Pause.input
        var failure: WebSocketViolation?
        do throws(WebSocketViolation) {
            pause = try self.inflate(&message, limit: limit)
        } catch {
            failure = error
        }
        guard message.isText(from: start, isWhole: false) else { throw .textNotUTF8 }
        if let failure { throw failure }
        return pause
    }

    /// Inflates the available part of a frame into the body of its message, up to a slice.
    private mutating func inflate(_ message: inout Unfinished, limit: Int) throws(WebSocketViolation) -> Pause {
        guard self.inflatedLeft > 0 else {
            self.hasMoreWork = true
            return .budget
        }
        let start = message.body.readableBytes
        defer { self.inflatedLeft -= message.body.readableBytes - start }
        guard let compression = self.compression, let isFinal = self.frame?.isFinal else { return .input }
        let inflater = self.inflater ?? WebSocketInflater(compression, account: self.account)
        self.inflater = inflater
        let end = start + min(Self.inflatedSlice, self.inflatedLeft)
        while true {
            if message.compressed.readableBytes == 0, var part = self.frame {
                let rest = part.length
                part.length = min(rest, self.input.readableBytes, Self.compressedSlice)
                if part.length > 0 { message.compressed = self.take(part, rest: rest - part.length) }
            }
            let isWhole = self.frame?.length == 0
            let progress = try inflater.inflate(
                &message.compressed,
                isEnd: isWhole && isFinal,
                into: &message.body,
                limit: limit,
                budget: end - message.body.readableBytes
            )
            switch progress {
            case .moreOutput:
                return .slice
            case .finished:
                return .message
            case .needsInput:
                // Releases the storage of a read.
                message.compressed = ByteBuffer()
                if isWhole { return .frame }
                if self.input.readableBytes == 0 { return .input }
            }
        }
    }
}
