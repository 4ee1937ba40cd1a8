// SPDX-License-Identifier: Apache-2.0
import HHSocket
package import NIOCore

/// Encodes frames into bytes.
///
/// The headers are sent in their order, with the escapes of the version. A frame with a body gets a `content-length`
/// after them, unless it has one.
package enum STOMPEncoder {
    /// The byte after a body.
    package static let end: UInt8 = 0
    /// The byte that is a heart-beat, or ends a line.
    package static let endOfLine = UInt8(ascii: "\n")

    /// Returns the reason for which a frame cannot be sent; nil if it can.
    ///
    /// - Parameter version: Nil before the agreement, where headers have no escapes and only ERROR may have a body.
    package static func refusal(
        of frame: STOMPFrame,
        version: STOMPVersion?,
        limits: STOMPLimits = STOMPLimits()
    ) -> STOMPRefusal? {
        do throws(STOMPRefusal) {
            _ = try self.check(frame, version: version, limits: limits.bounded)
            return nil
        } catch {
            return error
        }
    }

    /// Appends a frame with its body and the byte after it.
    ///
    /// - Throws: ``STOMPRefusal``, before anything is written.
    package static func encode(
        _ frame: STOMPFrame,
        version: STOMPVersion?,
        limits: STOMPLimits = STOMPLimits(),
        into bytes: inout ByteBuffer
    ) throws(STOMPRefusal) {
        let length = try self.check(frame, version: version, limits: limits.bounded)
        bytes.reserveCapacity(minimumWritableBytes: length + frame.body.readableBytes + 1)
        self.writeHead(frame, version, into: &bytes)
        bytes.writeImmutableBuffer(frame.body)
        bytes.writeInteger(self.end)
    }

    /// Appends all of a frame before its body. The body, and ``end`` after it, must follow.
    ///
    /// - Throws: ``STOMPRefusal``, before anything is written.
    package static func encodeHead(
        of frame: STOMPFrame,
        version: STOMPVersion?,
        limits: STOMPLimits = STOMPLimits(),
        into bytes: inout ByteBuffer
    ) throws(STOMPRefusal) {
        bytes.reserveCapacity(minimumWritableBytes: try self.check(frame, version: version, limits: limits.bounded))
        self.writeHead(frame, version, into: &bytes)
    }

    /// The number of bytes of a frame, apart from its escapes.
    package static func estimatedLength(of frame: STOMPFrame) -> Int {
        var length = frame.command.rawValue.utf8.count + 2 + frame.body.readableBytes + 1
        _ = frame.headers.first { name, value -> Never? in
            length += name.count + value.count + 2
            return nil
        }
        return length + (self.addsContentLength(to: frame) ? self.contentLengthLine(frame).utf8.count : 0)
    }

    // MARK: Checks

    /// Checks a frame against the rules of the version.
    ///
    /// - Returns: The length of all before the body.
    private static func check(
        _ frame: STOMPFrame,
        version: STOMPVersion?,
        limits: STOMPLimits
    ) throws(STOMPRefusal) -> Int {
        guard frame.command.isValid else { throw .command(frame.command) }
        try self.checkBody(of: frame, version: version, limits: limits)
        let escapes = STOMPEscapes(version, of: frame.command)
        var length = frame.command.rawValue.utf8.count + 2
        let refusal = frame.headers.first { name, value -> STOMPRefusal? in
            guard !name.isEmpty else { return .noName }
            length += name.count + value.count + 2
            if let byte = Self.unescapable(in: name, isName: true, escapes: escapes, length: &length) {
                return .header(name, byte: byte, isInName: true, command: frame.command, escapes: escapes)
            }
            if let byte = Self.unescapable(in: value, isName: false, escapes: escapes, length: &length) {
                return .header(name, byte: byte, isInName: false, command: frame.command, escapes: escapes)
            }
            return nil
        }
        if let refusal { throw refusal }
        var count = frame.headers.count
        if self.addsContentLength(to: frame) {
            count += 1
            length += self.contentLengthLine(frame).utf8.count
        }
        guard count <= limits.maximumHeaders else { throw .tooManyHeaders(count, limits) }
        guard length <= limits.maximumHeaderLength else { throw .headersTooLong(length, limits) }
        return length
    }

    private static func checkBody(
        of frame: STOMPFrame,
        version: STOMPVersion?,
        limits: STOMPLimits
    ) throws(STOMPRefusal) {
        let length = frame.body.readableBytes
        guard length <= limits.maximumBodyLength else { throw .bodyTooLong(length, limits) }
        if length > 0, !frame.command.mayHaveBody(in: version) || version == nil && frame.command != .error {
            throw .body(frame.command)
        }
        if let value = frame.headers.bytes(of: "content-length") {
            guard STOMPNumber.read(value) == length else { throw .contentLength(of: length) }
        } else if frame.omitsContentLength {
            let hasNUL = frame.body.withUnsafeReadableBytes { $0.firstIndex(of: 0, from: 0) != nil }
            if hasNUL { throw .nulInBody }
        }
    }

    /// The first byte that cannot be sent; nil if all can.
    ///
    /// - Parameter length: Increased by the number of escapes.
    private static func unescapable(
        in text: Slice<UnsafeRawBufferPointer>,
        isName: Bool,
        escapes: STOMPEscapes?,
        length: inout Int
    ) -> UInt8? {
        for byte in text {
            switch byte {
            case 0:
                return byte
            case UInt8(ascii: "\n"), UInt8(ascii: "\r"), UInt8(ascii: ":"), UInt8(ascii: "\\"):
                if escapes?.letter(for: byte) != nil {
                    length += 1
                } else if byte == UInt8(ascii: "\n") || byte == UInt8(ascii: "\r") {
                    return byte
                } else if byte == UInt8(ascii: ":"), isName {
                    return byte
                }
            default:
                continue
            }
        }
        return nil
    }

    // MARK: Bytes

    private static func addsContentLength(to frame: STOMPFrame) -> Bool {
        frame.body.readableBytes > 0 && !frame.omitsContentLength && !frame.headers.contains(name: "content-length")
    }

    private static func contentLengthLine(_ frame: STOMPFrame) -> String {
        "content-length:\(frame.body.readableBytes)\n"
    }

    private static func writeHead(_ frame: STOMPFrame, _ version: STOMPVersion?, into bytes: inout ByteBuffer) {
        let escapes = STOMPEscapes(version, of: frame.command)
        bytes.writeString(frame.command.rawValue)
        bytes.writeInteger(self.endOfLine)
        _ = frame.headers.first { name, value -> Never? in
            Self.write(name, escapes, into: &bytes)
            bytes.writeInteger(UInt8(ascii: ":"))
            Self.write(value, escapes, into: &bytes)
            bytes.writeInteger(Self.endOfLine)
            return nil
        }
        if self.addsContentLength(to: frame) { bytes.writeString(self.contentLengthLine(frame)) }
        bytes.writeInteger(self.endOfLine)
    }

    private static func write(
        _ text: Slice<UnsafeRawBufferPointer>,
        _ escapes: STOMPEscapes?,
        into bytes: inout ByteBuffer
    ) {
        guard let escapes, text.contains(where: { escapes.letter(for: $0) != nil }) else {
            bytes.writeBytes(text)
            return
        }
        for byte in text {
            if let letter = escapes.letter(for: byte) {
                bytes.writeInteger(UInt8(ascii: "\\"))
                bytes.writeInteger(letter)
            } else {
                bytes.writeInteger(byte)
            }
        }
    }
}
