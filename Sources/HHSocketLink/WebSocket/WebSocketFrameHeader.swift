// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The header of a frame (RFC 6455, section 5.2).
package struct WebSocketFrameHeader: Hashable, Sendable {
    /// The longest payload of a control frame, in bytes.
    package static let maximumControlLength = 125

    var opcode: WebSocketOpcode
    var isFinal: Bool
    /// Whether the message is compressed (RFC 7692, section 6).
    var isCompressed: Bool
    /// The length of the payload, in bytes.
    var length: Int
    /// Nil in frames of servers.
    var mask: WebSocketMask?

    /// Reads the header at the front of `bytes`; nil if it is incomplete. Faults are reported as soon as their bytes
    /// have arrived.
    ///
    /// - Parameters:
    ///   - isMasked: Whether the peer has to mask.
    ///   - allowsCompression: Whether the first bit that RFC 6455 reserves has a meaning.
    /// - Returns: The header, and the number of its bytes.
    static func read(
        _ bytes: UnsafeRawBufferPointer,
        isMasked: Bool,
        allowsCompression: Bool
    ) throws(WebSocketViolation) -> (header: WebSocketFrameHeader, size: Int)? {
        guard bytes.count >= 2 else { return nil }
        let (first, second) = (bytes[0], bytes[1])
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
        guard let (length, end) = try self.length(short, bytes) else { return nil }
        var header = WebSocketFrameHeader(
            opcode: opcode,
            isFinal: isFinal,
            isCompressed: reserved & 0b100 != 0,
            length: length
        )
        guard isMasked else { return (header, end) }
        guard bytes.count >= end + 4 else { return nil }
        let key = UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: end, as: UInt32.self))
        header.mask = WebSocketMask(key: key)
        return (header, end + 4)
    }

    /// Reads the length, and the index after it; nil if it is incomplete.
    @inline(__always)
    private static func length(
        _ short: Int,
        _ bytes: UnsafeRawBufferPointer
    ) throws(WebSocketViolation) -> (length: Int, end: Int)? {
        switch short {
        case 126:
            guard bytes.count >= 4 else { return nil }
            let length = UInt16(bigEndian: bytes.loadUnaligned(fromByteOffset: 2, as: UInt16.self))
            guard length > 125 else { throw .lengthForm(UInt64(length)) }
            return (Int(length), 4)
        case 127:
            guard bytes.count >= 10 else { return nil }
            let length = UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 2, as: UInt64.self))
            guard length <= UInt64(Int64.max) else { throw .lengthSign }
            guard length > 0xFFFF else { throw .lengthForm(length) }
            return (Int(clamping: length), 10)
        default:
            return (short, 2)
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
