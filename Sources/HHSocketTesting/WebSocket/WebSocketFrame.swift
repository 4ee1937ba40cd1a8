// SPDX-License-Identifier: Apache-2.0
public import NIOCore

/// A frame of a WebSocket to be sent (RFC 6455, section 5.2), valid or not.
///
/// ```swift
/// .text("hello")
/// .text("hello").masked()                              // by a server, which must not mask
/// .text("part").unfinished()
/// WebSocketFrame(.continuation, ByteBuffer(string: "and the rest"))
/// WebSocketFrame(.reserved(3))
/// .ping(ByteBuffer(repeating: 0, count: 126))          // one byte too long
/// .close(code: 1005)                                   // a code that is never sent
/// .deflateBomb(inflatingTo: 64 << 20)
/// ```
public struct WebSocketFrame: Hashable, Sendable {
    /// The kinds of frames.
    public enum Opcode: Hashable, Sendable {
        case continuation
        case text
        case binary
        case close
        case ping
        case pong
        /// A kind that RFC 6455 reserves: 3 to 7 and 11 to 15. The lower four bits are sent.
        case reserved(UInt8)

        package init(rawValue: UInt8) {
            switch rawValue {
            case 0: self = .continuation
            case 1: self = .text
            case 2: self = .binary
            case 8: self = .close
            case 9: self = .ping
            case 10: self = .pong
            default: self = .reserved(rawValue)
            }
        }

        package var rawValue: UInt8 {
            switch self {
            case .continuation: 0
            case .text: 1
            case .binary: 2
            case .close: 8
            case .ping: 9
            case .pong: 10
            case .reserved(let value): value
            }
        }
    }

    /// The forms in which a header has a length.
    package enum LengthForm: Hashable, Sendable {
        /// 7 bits, up to 125. Of a longer length the lower bits are sent.
        case short
        case bits16
        case bits64
    }

    /// The first bit of those that RFC 6455 reserves, by which a compressed message begins (RFC 7692).
    package static let compressionBit: UInt8 = 0b100
    /// Four bytes that differ, so that a mask which is applied wrongly shows.
    private static let key: UInt32 = 0x37FA_213D

    package var opcode: Opcode
    package var payload: ByteBuffer
    /// Whether it is the last frame of its message; true by default.
    package var isFinal = true
    /// The three reserved bits, 0 to 7; 0 by default.
    package var reservedBits: UInt8 = 0
    /// Whether the payload is masked; nil, the default, follows RFC 6455: a client's is, a server's is not.
    package var isMasked: Bool?
    /// The length that the header announces, in bytes; nil, the default, for the payload's.
    package var announcedLength: UInt64?
    /// The form of the length; nil, the default, for the shortest.
    package var lengthForm: LengthForm?

    /// - Parameters:
    ///   - opcode: Also one that is reserved.
    ///   - payload: Empty by default.
    public init(_ opcode: Opcode, _ payload: ByteBuffer = ByteBuffer()) {
        self.opcode = opcode
        self.payload = payload
    }

    // MARK: Right ones

    /// A text message, or the first part of one.
    public static func text(_ text: String) -> Self { Self(.text, ByteBuffer(string: text)) }

    /// A binary message, or the first part of one.
    package static func binary(_ bytes: ByteBuffer) -> Self { Self(.binary, bytes) }

    /// A binary message, or the first part of one.
    public static func binary(_ bytes: some Sequence<UInt8>) -> Self { .binary(ByteBuffer(bytes: bytes)) }

    /// A further part of a message.
    package static func continuation(_ bytes: ByteBuffer = ByteBuffer()) -> Self { Self(.continuation, bytes) }

    /// A further part of a text message.
    package static func continuation(_ text: String) -> Self { .continuation(ByteBuffer(string: text)) }

    /// A ping.
    public static func ping(_ payload: ByteBuffer = ByteBuffer()) -> Self { Self(.ping, payload) }

    /// A pong.
    package static func pong(_ payload: ByteBuffer = ByteBuffer()) -> Self { Self(.pong, payload) }

    /// A close frame with any code.
    public static func close(code: UInt16, reason: String = "") -> Self {
        var payload = ByteBuffer(integer: code)
        payload.writeString(reason)
        return Self(.close, payload)
    }

    /// A close frame with any payload; an empty one is right.
    package static func close(payload: ByteBuffer = ByteBuffer()) -> Self { Self(.close, payload) }

    // MARK: Adverbs

    /// More frames of its message follow.
    public func unfinished() -> Self { self.changing { $0.isFinal = false } }

    /// Returns the frame with reserved bits, 0 to 7.
    package func reserving(bits: UInt8) -> Self { self.changing { $0.reservedBits = bits } }

    /// Returns the frame masked, even if a server sends it.
    public func masked() -> Self { self.changing { $0.isMasked = true } }

    /// Returns the frame unmasked, even if a client sends it.
    public func unmasked() -> Self { self.changing { $0.isMasked = false } }

    /// Returns the frame with a header that announces `length` bytes, regardless of its payload. From 2^63 on the
    /// length has its top bit set.
    package func announcing(length: UInt64) -> Self { self.changing { $0.announcedLength = length } }

    /// Returns the frame with its length in this form, which may be longer than necessary.
    package func measured(in form: LengthForm) -> Self { self.changing { $0.lengthForm = form } }

    private func changing(_ change: (inout Self) -> Void) -> Self {
        var frame = self
        change(&frame)
        return frame
    }

    /// Returns the frame as several that carry at most `length` bytes each.
    func fragmented(length: Int) -> [Self] {
        guard self.payload.readableBytes > length else { return [self] }
        var rest = self.payload
        var frames: [Self] = []
        while rest.readableBytes > 0, let part = rest.readSlice(length: min(length, rest.readableBytes)) {
            var frame = self
            frame.payload = part
            frame.isFinal = self.isFinal && rest.readableBytes == 0
            if !frames.isEmpty {
                frame.opcode = .continuation
                frame.reservedBits = 0
            }
            frames.append(frame)
        }
        return frames
    }

    // MARK: Bytes

    /// Encodes the frame.
    ///
    /// - Parameter masks: Whether it is masked if ``isMasked`` is nil.
    func encode(masks: Bool, into out: inout ByteBuffer) {
        let isMasked = self.isMasked ?? masks
        let length = self.announcedLength ?? UInt64(self.payload.readableBytes)
        out.writeInteger((self.isFinal ? 0x80 : 0) | (self.reservedBits & 0b111) << 4 | (self.opcode.rawValue & 0x0F))
        let mask: UInt8 = isMasked ? 0x80 : 0
        switch self.lengthForm ?? (length < 126 ? .short : length <= 0xFFFF ? .bits16 : .bits64) {
        case .short:
            out.writeInteger(mask | UInt8(length & 0x7F))
        case .bits16:
            out.writeInteger(mask | 126)
            out.writeInteger(UInt16(truncatingIfNeeded: length))
        case .bits64:
            out.writeInteger(mask | 127)
            out.writeInteger(length)
        }
        guard isMasked else {
            out.writeImmutableBuffer(self.payload)
            return
        }
        out.writeInteger(Self.key)
        out.write(self.payload, mask: Self.key)
    }
}

extension ByteBuffer {
    /// Appends bytes, masked.
    fileprivate mutating func write(_ bytes: ByteBuffer, mask key: UInt32) {
        let count = bytes.readableBytes
        let wide = (UInt64(key) << 32 | UInt64(key)).bigEndian
        self.writeWithUnsafeMutableBytes(minimumWritableBytes: count) { target in
            bytes.withUnsafeReadableBytes { source in
                var index = 0
                while count - index >= 8 {
                    let word = source.loadUnaligned(fromByteOffset: index, as: UInt64.self) ^ wide
                    target.storeBytes(of: word, toByteOffset: index, as: UInt64.self)
                    index += 8
                }
                while index < count {
                    target[index] = source[index] ^ UInt8(truncatingIfNeeded: key >> UInt32(24 - 8 * (index & 3)))
                    index += 1
                }
            }
            return count
        }
    }

    /// Returns these bytes `count` times.
    func repeated(_ count: Int) -> ByteBuffer {
        guard count != 1 else { return self }
        var all = ByteBuffer()
        for _ in 0..<max(0, count) { all.writeImmutableBuffer(self) }
        return all
    }
}
