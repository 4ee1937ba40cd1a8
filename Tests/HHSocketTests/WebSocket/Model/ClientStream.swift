// SPDX-License-Identifier: Apache-2.0
import NIOCore

@testable import HHSocket
@testable import HHSocketLink

/// The bytes that a client writes on one connection: the request that opens a WebSocket, then frames, by RFC 6455's
/// rules for clients.
struct ClientStream {
    /// A broken rule.
    struct Fault: Error {
        var description: String
    }

    enum Item {
        /// The head of the request.
        case request(String)
        /// The beginning of a message. The number is the first part of the payload, if it can be read.
        case begins(number: Int?)
        case message(WebSocketMessageKind, ByteBuffer)
        case ping(ByteBuffer)
        case pong
        case close(WebSocketClose)
    }

    private static let headEnd = Array("\r\n\r\n".utf8)

    /// The number of bytes before the next frame.
    private(set) var offset = 0
    /// Whether a message has begun and has not ended.
    private(set) var isInMessage = false
    private var input = ByteBuffer()
    private var hasRequest = false
    private var hasClosed = false
    private var hasSeenHeader = false
    private let allowsCompression: Bool
    private var decoder: WebSocketDecoder

    init(deflate: DeflateAgreement?) {
        self.allowsCompression = deflate != nil
        self.decoder = WebSocketDecoder(
            role: .server,
            mode: .messages(WebSocketLimits()),
            deflate: deflate,
            account: nil
        )
    }

    mutating func append(_ bytes: ByteBuffer) {
        self.input.writeImmutableBuffer(bytes)
        if self.input.readerIndex > 1 << 20 { self.input.discardReadBytes() }
    }

    /// Takes the next item that is complete, or begins; nil if more bytes are required.
    mutating func next() throws(Fault) -> Item? {
        guard self.hasRequest else { return self.nextRequest() }
        guard self.input.readableBytes > 0 else { return nil }
        guard !self.hasClosed else { throw Fault(description: "the client sends more behind its close frame") }
        guard let header = self.header else { return nil }
        if !self.hasSeenHeader {
            self.hasSeenHeader = true
            try self.check(header)
            if header.opcode == 1 || header.opcode == 2 {
                self.isInMessage = true
                return .begins(number: header.first & 0x40 == 0 ? self.number(header) : nil)
            }
        }
        guard let frame = self.input.readSlice(length: header.count + header.length) else { return nil }
        self.offset += frame.readableBytes
        self.hasSeenHeader = false
        return try self.item(frame, header)
    }

    private mutating func nextRequest() -> Item? {
        let view = self.input.readableBytesView
        guard let end = view.indices.first(where: { view[$0...].starts(with: Self.headEnd) }),
            let head = self.input.readString(length: end - view.startIndex + Self.headEnd.count)
        else { return nil }
        self.hasRequest = true
        self.offset += head.utf8.count
        return .request(head)
    }

    private struct Header {
        var first: UInt8
        var opcode: UInt8 { self.first & 0x0F }
        var isFinal: Bool { self.first & 0x80 != 0 }
        var isMasked: Bool
        /// The number of bytes of the header, and of the payload.
        var count: Int
        var length: Int
    }

    /// The header of the frame at the front; nil if it is incomplete.
    private var header: Header? {
        let start = self.input.readerIndex
        guard let first = self.input.getInteger(at: start, as: UInt8.self),
            let second = self.input.getInteger(at: start + 1, as: UInt8.self)
        else { return nil }
        var header = Header(first: first, isMasked: second & 0x80 != 0, count: 2, length: Int(second & 0x7F))
        if header.length == 126 {
            guard let length = self.input.getInteger(at: start + 2, as: UInt16.self) else { return nil }
            (header.count, header.length) = (4, Int(length))
        } else if header.length == 127 {
            guard let length = self.input.getInteger(at: start + 2, as: UInt64.self) else { return nil }
            (header.count, header.length) = (10, Int(clamping: length))
        }
        if header.isMasked { header.count += 4 }
        return self.input.readableBytes >= header.count ? header : nil
    }

    private func check(_ header: Header) throws(Fault) {
        let (opcode, reserved) = (header.opcode, header.first >> 4 & 0b111)
        guard header.isMasked else { throw Fault(description: "a frame is not masked") }
        let mayBeCompressed = self.allowsCompression && (opcode == 1 || opcode == 2)
        guard reserved == 0 || reserved == 0b100 && mayBeCompressed else {
            throw Fault(description: "a frame has reserved bits")
        }
        switch opcode {
        case 0:
            guard self.isInMessage else { throw Fault(description: "a continuation continues nothing") }
        case 1, 2:
            guard !self.isInMessage else { throw Fault(description: "a message begins within another") }
        case 8...10:
            guard header.isFinal, header.length <= 125 else { throw Fault(description: "a long control frame") }
        default:
            throw Fault(description: "opcode \(opcode)")
        }
        if opcode == 8, self.isInMessage { throw Fault(description: "a close frame within a message") }
    }

    /// The number with which the payload of the frame at the front begins.
    private func number(_ header: Header) -> Int? {
        let start = self.input.readerIndex + header.count
        guard header.length >= SentMessage.prefixLength,
            let key = self.input.getBytes(at: start - 4, length: 4),
            let bytes = self.input.getBytes(at: start, length: SentMessage.prefixLength)
        else { return nil }
        return Int(String(decoding: bytes.enumerated().map { $1 ^ key[$0 & 3] }, as: UTF8.self))
    }

    private mutating func item(_ frame: ByteBuffer, _ header: Header) throws(Fault) -> Item? {
        self.decoder.append(frame)
        if header.opcode < 8, header.isFinal { self.isInMessage = false }
        let input: WebSocketInput?
        do throws(WebSocketViolation) {
            input = try self.decoder.next()
        } catch {
            throw Fault(description: "the client's bytes: \(error)")
        }
        switch input {
        case .message(let kind, let payload):
            return .message(kind, payload)
        case .ping(let payload):
            return .ping(payload)
        case .pong:
            return .pong
        case .close(let close):
            self.hasClosed = true
            return .close(close)
        case .bytes, nil:
            return try self.next()
        }
    }
}
