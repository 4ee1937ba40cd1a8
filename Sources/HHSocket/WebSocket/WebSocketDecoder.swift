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
        var fragments = 0
        /// The length that the headers so far announce, in bytes.
        var length = 0
        var body = ByteBuffer()
        var validator = UTF8Validator()
    }

    /// Payloads up to this many bytes are copied out of the read's buffer, so that a small message kept for long does
    /// not keep all of it.
    private static let copyLimit = 1_024

    private let isMasked: Bool
    private let mode: Mode
    private var input = ByteBuffer()
    /// The header of the frame whose payload is next; its length is what is still to come.
    private var frame: WebSocketFrameHeader?
    private var message: Unfinished?
    private var failure: WebSocketViolation?
    private var isClosed = false

    /// - Parameter role: Our side.
    package init(role: WebSocketRole, mode: Mode) {
        self.isMasked = role == .server
        self.mode = mode
    }

    /// The number of bytes held that have not been returned.
    package var bufferedBytes: Int { self.input.readableBytes + (self.message?.body.readableBytes ?? 0) }

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
            return try self.find()
        } catch {
            self.failure = error
            self.input = ByteBuffer()
            self.message = nil
            throw error
        }
    }

    private mutating func find() throws(WebSocketViolation) -> WebSocketInput? {
        while true {
            if self.frame == nil {
                guard
                    let header = try WebSocketFrameHeader.read(
                        &self.input,
                        isMasked: self.isMasked,
                        allowsCompression: false
                    )
                else { return nil }
                try self.begin(header)
                self.frame = header
            }
            guard let frame = self.frame else { return nil }
            if frame.opcode.isControl { return try self.control(frame) }
            switch self.mode {
            case .stream:
                if let bytes = self.streamed(frame) { return .bytes(bytes) }
            case .messages:
                if let message = try self.whole(frame) { return message }
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
            self.message = Unfinished(kind: header.opcode == .text ? .text : .binary)
        }
        guard case .messages(let limits) = self.mode, var message = self.message.take() else { return }
        defer { self.message = message }
        message.fragments += 1
        guard message.fragments <= limits.maximumFragments else {
            throw .tooManyFragments(limit: limits.maximumFragments)
        }
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
            self.input = ByteBuffer()
            self.message = nil
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
            if rest > 0 { self.frame?.mask = mask }
        } else if part.length > Self.copyLimit {
            bytes = self.input.readSlice(length: part.length) ?? bytes
        } else if part.length > 0 {
            bytes.reserveCapacity(part.length)
            self.input.readWithUnsafeReadableBytes { source in
                bytes.writeBytes(UnsafeRawBufferPointer(rebasing: source[..<part.length]))
                return part.length
            }
        }
        if rest > 0 { self.frame?.length = rest }
        return bytes
    }
}
