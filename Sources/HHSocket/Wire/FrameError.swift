/// A byte stream that cannot be decoded any further. Where the next frame starts is unknown, so the connection must
/// end.
public struct FrameError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The fault of the stream. More may be added; always have a default case.
    public struct Code: Hashable, Sendable, CustomStringConvertible {
        private enum Name: String, Hashable, Sendable {
            case payloadTooLarge, frameTooShort, headerLength, wrongConstant, wrongTail, implausible, corruptRun
        }

        private var name: Name

        private init(_ name: Name) { self.name = name }

        /// The code's name, such as `payloadTooLarge`.
        public var description: String { self.name.rawValue }

        /// A header announced more payload than the limit.
        public static let payloadTooLarge = Self(.payloadTooLarge)
        /// A header announced a frame shorter than the header itself and what follows the payload.
        public static let frameTooShort = Self(.frameTooShort)
        /// A header announced a length of its own that is not accepted.
        public static let headerLength = Self(.headerLength)
        /// Bytes that should be the same in every frame are others.
        public static let wrongConstant = Self(.wrongConstant)
        /// A frame did not end with its type.
        public static let wrongTail = Self(.wrongTail)
        /// After a wrong checksum came a header with a type that nobody uses: the length had been wrong too.
        public static let implausible = Self(.implausible)
        /// The limit of consecutive wrong checksums was reached.
        public static let corruptRun = Self(.corruptRun)
    }

    public let code: Code
    /// The bytes that were found and those that were expected, in one line.
    public let message: String
    /// The type of the frame concerned, where its header was read.
    public let type: UInt32?
    /// The serial of the frame concerned, where its header was read.
    public let serial: UInt32?

    public var description: String { self.message }

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

    static func frameTooShort(length: Int, least: Int, type: UInt32, serial: UInt32) -> FrameError {
        FrameError(
            code: .frameTooShort,
            message: """
                a frame of type \(type), serial \(serial) announces a length of \(length) bytes in all, but without any \
                payload it has \(least); the peer speaks another protocol
                """,
            type: type,
            serial: serial
        )
    }

    static func headerLength(
        _ announced: UInt32,
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
                """,
            type: nil,
            serial: nil
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
                after a wrong checksum comes a frame of type \(type), serial \(serial), which nobody uses: the length \
                before was wrong too
                """,
            type: type,
            serial: serial
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

    private static func hex(_ bytes: [UInt8]) -> String {
        let digits = Array("0123456789ABCDEF".utf8)
        // A long constant is told apart by its beginning.
        let shown = bytes.prefix(16).flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }
        return String(decoding: shown, as: UTF8.self) + (bytes.count > 16 ? "…" : "")
    }
}
