package import NIOCore

/// A message, a part of one, or a control frame that has arrived.
package enum WebSocketInput: Hashable, Sendable {
    /// A whole message; text has been checked.
    case message(WebSocketMessageKind, ByteBuffer)
    /// The next bytes of a stream of binary messages.
    case bytes(ByteBuffer)
    case ping(ByteBuffer)
    case pong(ByteBuffer)
    /// The peer's close frame. Nothing follows.
    case close(WebSocketClose)
}

/// Turns the bytes of a connection into messages, or into the stream of bytes that its binary messages carry.
///
/// Strict where RFC 6455 says MUST. Everything before a violation is returned first; from then on each call throws the
/// same one.
///
/// Copies share the state of the decompression, so only one of them may go on decoding.
package struct WebSocketDecoder: Sendable {
    package enum Mode: Hashable, Sendable {
        /// Whole messages, up to a limit.
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
        /// Unmasked bytes of a compressed message that the inflater has not taken yet.
        var compressed = ByteBuffer()
        /// The bytes to return, inflated if the message is compressed.
        var body = ByteBuffer()
        var validator = UTF8Validator()
    }

    /// Payloads up to this many bytes are copied out of the read's buffer, so that a small message kept for long does
    /// not keep all of it.
    private static let copyLimit = 1_024
    /// The number of compressed bytes that are unmasked at once.
    private static let compressedSlice = 16_384
    /// The number of bytes after which inflating pauses: to check text, or to return the bytes of a stream.
    private static let inflatedSlice = 65_536

    /// The reason for the end of a call to `inflate`.
    private enum Pause {
        /// A slice of output is there, and more may follow from the same input.
        case slice
        /// The frame goes on in the next read.
        case input
        /// All of the frame has been inflated, and the message goes on.
        case frame
        /// All of the message has been inflated.
        case message
    }

    private let isMasked: Bool
    private let mode: Mode
    /// The parameters of the peer's messages; nil if they may not be compressed.
    private let compression: DeflateDirection?
    /// Nil before the first compressed message.
    private var inflater: WebSocketInflater?
    private var input = ByteBuffer()
    /// The header of the frame whose payload is next; its length is what is still to come.
    private var frame: WebSocketFrameHeader?
    private var message: Unfinished?
    private var failure: WebSocketViolation?
    private var isClosed = false

    /// - Parameters:
    ///   - role: Our side.
    ///   - mode: The form in which messages are returned, and their limits.
    ///   - deflate: The agreement on compression, if there is one.
    package init(role: WebSocketRole, mode: Mode, deflate: DeflateAgreement? = nil) {
        self.isMasked = role == .server
        self.mode = mode
        self.compression = deflate?.direction(from: role == .server ? .client : .server)
    }

    /// The number of bytes held that have not been returned: inflated ones, and compressed ones still to be inflated.
    package var bufferedBytes: Int {
        guard let message = self.message else { return self.input.readableBytes }
        return self.input.readableBytes + message.compressed.readableBytes + message.body.readableBytes
    }

    /// Whether memory is allocated for the decompression of messages.
    var holdsContext: Bool { self.inflater?.isAllocated == true }

    /// Frees the memory for decompression between messages, unless it was used since the last call.
    mutating func releaseContextUnlessUsed() { self.inflater?.releaseUnlessUsed() }

    /// Takes the bytes of a read.
    package mutating func append(_ bytes: consuming ByteBuffer) {
        guard self.failure == nil, !self.isClosed else { return }
        if self.input.readableBytes == 0 {
            self.input = bytes
        } else {
            // As a rule a header that was cut.
            self.input.discardReadBytes()
            self.input.writeBuffer(&bytes)
        }
    }

    /// Returns what has arrived next; nil where more bytes are needed, and after the peer's close frame.
    package mutating func next() throws(WebSocketViolation) -> WebSocketInput? {
        if let failure = self.failure { throw failure }
        guard !self.isClosed else { return nil }
        do throws(WebSocketViolation) {
            if let input = try self.find() { return input }
        } catch {
            self.fail(error)
            throw error
        }
        self.keepRest()
        if self.message == nil { self.inflater?.releaseIfIdle() }
        return nil
    }

    /// Releases the buffer of a read, which the channel then uses for the next one: of a cut header or control frame
    /// a copy is kept.
    private mutating func keepRest() {
        if self.input.readableBytes == 0 {
            self.input = ByteBuffer()
        } else if self.input.capacity > Self.copyLimit {
            self.input = ByteBuffer(bytes: self.input.readableBytesView)
        }
    }

    private mutating func fail(_ failure: WebSocketViolation) {
        self.failure = failure
        self.discard()
    }

    /// Frees everything held, since nothing that follows is read.
    private mutating func discard() {
        self.input = ByteBuffer()
        self.message = nil
        self.inflater = nil
    }

    private mutating func find() throws(WebSocketViolation) -> WebSocketInput? {
        while true {
            if self.frame == nil {
                guard
                    let header = try WebSocketFrameHeader.read(
                        &self.input,
                        isMasked: self.isMasked,
                        allowsCompression: self.compression != nil
                    )
                else { return nil }
                try self.begin(header)
                self.frame = header
            }
            guard let frame = self.frame else { return nil }
            if frame.opcode.isControl { return try self.control(frame) }
            let isCompressed = self.message?.isCompressed == true
            switch self.mode {
            case .stream:
                let bytes = isCompressed ? try self.inflatedStream() : self.streamed(frame)
                if let bytes { return .bytes(bytes) }
            case .messages(let limits):
                let message =
                    isCompressed
                    ? try self.inflatedMessage(limit: limits.maximumMessageLength)
                    : try self.whole(frame)
                if let message { return message }
            }
            // The frame goes on in the next read.
            if self.frame != nil { return nil }
        }
    }

    /// Checks that a frame may come now, and its length.
    private mutating func begin(_ header: WebSocketFrameHeader) throws(WebSocketViolation) {
        switch header.opcode {
        case .close, .ping, .pong:
            return
        case .continuation:
            guard self.message != nil else { throw .strayContinuation }
        case .text, .binary:
            guard self.message == nil else { throw .interruptedMessage }
            if header.opcode == .text, self.mode == .stream { throw .unexpectedText }
            self.message = Unfinished(
                kind: header.opcode == .text ? .text : .binary,
                isCompressed: header.isCompressed
            )
        }
        guard case .messages(let limits) = self.mode, var message = self.message.take() else { return }
        defer { self.message = message }
        message.fragments += 1
        guard message.fragments <= limits.maximumFragments else {
            throw .tooManyFragments(limit: limits.maximumFragments)
        }
        // The length of a compressed message is only known as it is inflated.
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
            self.discard()
            return .close(close)
        }
    }

    /// The bytes of the frame that are there; nil if none are.
    private mutating func streamed(_ frame: WebSocketFrameHeader) -> ByteBuffer? {
        var part = frame
        part.length = min(frame.length, self.input.readableBytes)
        let bytes = part.length > 0 ? self.take(part, rest: frame.length - part.length) : nil
        if frame.length == part.length { self.end(frame) }
        return bytes
    }

    private mutating func end(_ frame: WebSocketFrameHeader) {
        self.frame = nil
        if frame.isFinal { self.message = nil }
    }

    /// Takes the bytes of the frame that are there to its message, and returns that if it is whole.
    private mutating func whole(_ frame: WebSocketFrameHeader) throws(WebSocketViolation) -> WebSocketInput? {
        guard var message = self.message.take() else { return nil }
        let available = min(frame.length, self.input.readableBytes)
        let isWhole = available == frame.length
        var part = frame
        part.length = available
        var piece = self.take(part, rest: frame.length - available)
        if message.kind == .text {
            guard piece.withUnsafeReadableBytes({ message.validator.append($0) }) else { throw .textNotUTF8 }
            guard !isWhole || !frame.isFinal || message.validator.isComplete else { throw .textNotUTF8 }
        }
        if message.body.readableBytes == 0 { message.body = piece } else { message.body.writeBuffer(&piece) }
        guard isWhole else {
            self.message = message
            return nil
        }
        self.frame = nil
        guard frame.isFinal else {
            self.message = message
            return nil
        }
        return .message(message.kind, message.body)
    }

    /// Takes bytes of a payload off the input, unmasked. `frame` is then what is still to come of it, if anything is.
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
            case .slice, .input: break
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

    /// Inflates what is there of a frame, and returns its message if that is whole.
    private mutating func inflatedMessage(limit: Int) throws(WebSocketViolation) -> WebSocketInput? {
        guard var message = self.message.take() else { return nil }
        while true {
            switch try self.inflateChecked(&message, limit: limit) {
            case .slice:
                continue
            case .input:
                self.message = message
                return nil
            case .frame:
                self.frame = nil
                self.message = message
                return nil
            case .message:
                self.frame = nil
                guard message.kind != .text || message.validator.isComplete else { throw .textNotUTF8 }
                return .message(message.kind, message.body)
            }
        }
    }

    /// Inflates up to a slice, and checks it if it is text: before a fault that follows it is reported, so that the
    /// result does not depend on where reads end.
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
        if message.kind == .text {
            var validator = message.validator
            let isValid = message.body.withUnsafeReadableBytes { body in
                validator.append(UnsafeRawBufferPointer(rebasing: body[start...]))
            }
            guard isValid else { throw .textNotUTF8 }
            message.validator = validator
        }
        if let failure { throw failure }
        return pause
    }

    /// Inflates what is there of a frame to the body of its message, up to a slice.
    private mutating func inflate(_ message: inout Unfinished, limit: Int) throws(WebSocketViolation) -> Pause {
        guard let compression = self.compression, let isFinal = self.frame?.isFinal else { return .input }
        let inflater = self.inflater ?? WebSocketInflater(compression)
        self.inflater = inflater
        let end = message.body.readableBytes + Self.inflatedSlice
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
                // Not to hold the storage of a read.
                message.compressed = ByteBuffer()
                if isWhole { return .frame }
                if self.input.readableBytes == 0 { return .input }
            }
        }
    }
}
