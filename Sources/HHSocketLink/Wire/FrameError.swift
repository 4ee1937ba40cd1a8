// SPDX-License-Identifier: Apache-2.0
/// Bytes that are no frame of the format. Where the next frame starts is unknown, so the connection must end, unless
/// the format has separators by which the decoder finds the next frame.
public struct FrameError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The fault of the stream. Cases may be added; have a default when you switch over it.
    public enum Code: Hashable, Sendable {
        /// A header announced more payload than the limit.
        case payloadTooLarge
        /// A header announced a frame shorter than the header itself and the part after the payload.
        case frameTooShort
        /// A header announced its own length, which is not accepted.
        case headerLength
        /// A header has more than 1,024 bytes.
        case headerTooLong
        /// A number has no digits, others than digits, or more than 32 bits.
        case illegalNumber
        /// Bytes that should be the same in every frame are others.
        case wrongConstant
        /// A frame did not end with its type.
        case wrongTail
        /// A frame did not end with the separator at the place that its length determines.
        case wrongEnd
        /// A wrong checksum was followed by a header with an unused type: the length was wrong too.
        case implausible
        /// The limit of consecutive frames with a wrong checksum, or without the right end, was reached.
        case corruptRun
        /// The rest of a frame did not arrive in time.
        case givenUp
        /// A ``FrameCodec`` refused the bytes or the frame, or broke the rules of one.
        case codec
    }

    /// The fault, for programs.
    public let code: Code
    /// The bytes that were found and those that were expected, in one line.
    public let message: String
    /// The type of the frame concerned, where its header was read.
    public let type: UInt32?
    /// The serial of the frame concerned, where its header was read.
    public let serial: UInt32?
    /// Whether the header of the frame concerned is marked as a push's by a flag.
    package var isMarkedAsPush = false

    /// The message.
    public var description: String { self.message }

    /// The error with the bytes of the header and its decoded fields, which show the author of the layout what is
    /// wrong.
    func seen(_ reading: String) -> FrameError {
        var seen = FrameError(
            code: self.code,
            message: "\(self.message); \(reading)",
            type: self.type,
            serial: self.serial
        )
        seen.isMarkedAsPush = self.isMarkedAsPush
        return seen
    }

    init(code: Code, message: String, type: UInt32? = nil, serial: UInt32? = nil) {
        self.code = code
        self.message = message
        self.type = type
        self.serial = serial
    }

    /// A header announced a payload of `length` bytes; `limit` are allowed.
    public static func payloadTooLarge(length: Int, limit: Int, type: UInt32, serial: UInt32) -> FrameError {
        FrameError(
            code: .payloadTooLarge,
            message: """
                a frame of type \(type), serial \(serial) announces a payload of \(length) bytes, over the limit of \
                \(limit); either the peer speaks another protocol or the limit (maximumPayloadLength) is too low
                """,
            type: type,
            serial: serial
        )
    }

    /// A hello announced a payload of `length` bytes; `limit` are allowed.
    static func helloTooLarge(length: Int, limit: Int) -> FrameError {
        FrameError(
            code: .payloadTooLarge,
            message: "a hello announces a payload of \(length) bytes, over its limit of \(limit)",
            type: FrameType.hello,
            serial: FrameSerial.hello
        )
    }

    static func frameTooShort(
        length: Int,
        least: Int,
        counts: WireFormat.LengthScope,
        type: UInt32,
        serial: UInt32
    ) -> FrameError {
        FrameError(
            code: .frameTooShort,
            message: """
                a frame of type \(type), serial \(serial) announces a length of \(length) bytes \
                \(counts == .rest ? "behind the length" : "in all"), but without any payload it has \(least); the peer \
                speaks another protocol
                """,
            type: type,
            serial: serial
        )
    }

    static func headerLength(
        _ announced: UInt64,
        accepted: ClosedRange<Int>,
        type: UInt32,
        serial: UInt32
    ) -> FrameError {
        FrameError(
            code: .headerLength,
            message: """
                a header announces that it has \(announced) bytes; from \(accepted.lowerBound) to \(accepted.upperBound) \
                are accepted
                """,
            type: type,
            serial: serial
        )
    }

    static func wrongConstant(expected: [UInt8], received: [UInt8], offset: Int) -> FrameError {
        FrameError(
            code: .wrongConstant,
            message: """
                a header has the bytes \(Self.hex(received)) at offset \(offset), where \(Self.hex(expected)) belong; the \
                peer speaks another protocol
                """
        )
    }

    static func headerTooLong() -> FrameError {
        FrameError(
            code: .headerTooLong,
            message: """
                a header has more than \(WireFormat.maximumHeaderLength) bytes; the peer speaks another protocol
                """
        )
    }

    static func illegalNumber(_ field: HeaderField, _ bytes: [UInt8], offset: Int) -> FrameError {
        let expected =
            switch field.code.kind {
            case .decimal: "decimal digits of a number up to \(UInt32.max)"
            case .hexadecimal: "hexadecimal digits of a number up to 0xFFFFFFFF"
            case .big, .little, .big32, .little32: "a number up to \(UInt32.max)"
            }
        return FrameError(
            code: .illegalNumber,
            message: """
                a header has the bytes \(Self.hex(bytes)) at offset \(offset), where its \(field.kind) belongs, \
                \(expected)
                """
        )
    }

    static func wrongEnd(expected: [UInt8], received: [UInt8], _ header: FrameHeader) -> FrameError {
        FrameError(
            code: .wrongEnd,
            message: """
                a frame of type \(header.type), serial \(header.serial) with a length of \(header.length) bytes has \
                \(Self.hex(received)) behind it, where the separator \(Self.hex(expected)) belongs
                """,
            type: header.type,
            serial: header.serial
        )
    }

    static func givenUp(_ arriving: FrameDecoder.Arriving) -> FrameError {
        FrameError(
            code: .givenUp,
            message: """
                of a frame of type \(arriving.type), serial \(arriving.serial) only \(arriving.receivedBytes) of \
                \(arriving.length) bytes arrived in time
                """,
            type: arriving.type,
            serial: arriving.serial
        )
    }

    static func wrongTail(_ tail: UInt32, type: UInt32, serial: UInt32) -> FrameError {
        FrameError(
            code: .wrongTail,
            message: "a frame of type \(type), serial \(serial) ends with \(tail) instead of its type",
            type: type,
            serial: serial
        )
    }

    static func implausible(type: UInt32, serial: UInt32) -> FrameError {
        FrameError(
            code: .implausible,
            message: """
                after a wrong checksum comes a frame of type \(type), serial \(serial), which is not in use: the length \
                before was wrong too
                """,
            type: type,
            serial: serial
        )
    }

    static func malformedRun(_ count: Int, last: FrameError) -> FrameError {
        FrameError(
            code: .corruptRun,
            message: """
                \(count) times in a row the bytes were not a valid frame, most recently because \(last.message); either the peer \
                speaks another protocol or the connection damages what it carries
                """,
            type: last.type,
            serial: last.serial
        )
    }

    static func corruptRun(_ count: Int, type: UInt32, serial: UInt32) -> FrameError {
        FrameError(
            code: .corruptRun,
            message: """
                the checksums of \(count) frames in a row were wrong, the last of type \(type), serial \(serial); either \
                the peer computes them in another way or the connection damages what it carries
                """,
            type: type,
            serial: serial
        )
    }

    static func hex(_ bytes: [UInt8], atMost limit: Int = 16) -> String {
        // A long constant is identified by its beginning.
        bytes.prefix(limit).hexadecimal.uppercased() + (bytes.count > limit ? "…" : "")
    }
}
