import NIOCore

/// The header of a frame (RFC 6455, section 5.2).
struct WebSocketFrameHeader: Hashable, Sendable {
    /// The longest payload of a control frame, in bytes.
    static let maximumControlLength = 125

    var opcode: WebSocketOpcode
    var isFinal: Bool
    /// Whether the message is compressed (RFC 7692, section 6).
    var isCompressed: Bool
    /// The length of the payload, in bytes.
    var length: Int
    /// Nil in frames of servers.
    var mask: WebSocketMask?

    /// Reads a header off the front of `bytes`; nil, and nothing is read, if it is incomplete. Faults show as soon as
    /// their bytes are there.
    ///
    /// - Parameters:
    ///   - isMasked: Whether the peer has to mask.
    ///   - allowsCompression: Whether the first bit that RFC 6455 reserves has a meaning.
    static func read(
        _ bytes: inout ByteBuffer,
        isMasked: Bool,
        allowsCompression: Bool
    ) throws(WebSocketViolation) -> WebSocketFrameHeader? {
        guard let start = bytes.getInteger(at: bytes.readerIndex, as: UInt16.self) else { return nil }
        let (first, second) = (UInt8(start >> 8), UInt8(truncatingIfNeeded: start))
        let reserved = first >> 4 & 0b111
        guard let opcode = WebSocketOpcode(rawValue: first & 0x0F) else { throw .opcode(first & 0x0F) }
        // The bit belongs to the first frame of a message.
        let allowed: UInt8 = allowsCompression && (opcode == .text || opcode == .binary) ? 0b100 : 0
        guard reserved & ~allowed == 0 else { throw .reservedBits(reserved) }
        guard second & 0x80 != 0 || !isMasked else { throw .unmaskedFrame }
        guard second & 0x80 == 0 || isMasked else { throw .maskedFrame }
        let isFinal = first & 0x80 != 0
        let short = Int(second & 0x7F)
        if opcode.isControl {
            guard isFinal else { throw .fragmentedControlFrame }
            guard short <= Self.maximumControlLength else { throw .longControlFrame(short) }
        }
        guard let (length, width) = try self.length(short, bytes) else { return nil }
        var header = WebSocketFrameHeader(
            opcode: opcode,
            isFinal: isFinal,
            isCompressed: reserved & 0b100 != 0,
            length: length
        )
        var end = bytes.readerIndex + 2 + width
        if isMasked {
            guard let key = bytes.getInteger(at: end, as: UInt32.self) else { return nil }
            header.mask = WebSocketMask(key: key)
            end += 4
        }
        bytes.moveReaderIndex(to: end)
        return header
    }

    /// Reads the length, and the number of bytes of its extended form; nil if they are incomplete.
    private static func length(
        _ short: Int,
        _ bytes: ByteBuffer
    ) throws(WebSocketViolation) -> (length: Int, width: Int)? {
        let index = bytes.readerIndex + 2
        switch short {
        case 126:
            guard let length = bytes.getInteger(at: index, as: UInt16.self) else { return nil }
            guard length > 125 else { throw .lengthForm(UInt64(length)) }
            return (Int(length), 2)
        case 127:
            guard let length = bytes.getInteger(at: index, as: UInt64.self) else { return nil }
            guard length <= UInt64(Int64.max) else { throw .lengthSign }
            guard length > 0xFFFF else { throw .lengthForm(length) }
            return (Int(clamping: length), 8)
        default:
            return (short, 0)
        }
    }

    /// Writes a header.
    ///
    /// - Parameter key: The masking key, for a frame of a client.
    static func write(
        _ opcode: WebSocketOpcode,
        isFinal: Bool = true,
        isCompressed: Bool = false,
        length: Int,
        key: UInt32?,
        to out: inout ByteBuffer
    ) {
        let first = (isFinal ? 0x80 : 0) | (isCompressed ? 0x40 : 0) | opcode.rawValue
        let masked: UInt8 = key == nil ? 0 : 0x80
        switch length {
        case ...125:
            out.writeInteger(UInt16(first) << 8 | UInt16(masked | UInt8(length)))
        case ...0xFFFF:
            out.writeInteger(UInt32(first) << 24 | UInt32(masked | 126) << 16 | UInt32(length))
        default:
            out.writeInteger(UInt16(first) << 8 | UInt16(masked | 127))
            out.writeInteger(UInt64(length))
        }
        if let key { out.writeInteger(key) }
    }
}
