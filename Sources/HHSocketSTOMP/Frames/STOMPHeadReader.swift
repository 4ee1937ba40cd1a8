// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// Reads the command and the headers of one frame, regardless of how their bytes are split.
///
/// Each byte is searched once, and each line is read once, when its end has arrived.
struct STOMPHeadReader: Sendable {
    private(set) var command: STOMPCommand?
    private(set) var fields: [STOMPHeaders.Field] = []
    /// The number of bytes up to the end of the blank line, once it has arrived.
    private(set) var length = 0
    /// Whether names or values have escapes.
    private(set) var hasEscapes = false
    private var lineStart = 0
    /// The number of bytes in which the ends of lines were searched.
    private(set) var searched = 0

    /// Whether bytes of the frame have arrived.
    var hasBegun: Bool { self.searched > 0 }

    /// Continues reading.
    ///
    /// - Parameter bytes: All received bytes of the frame, at least one.
    /// - Returns: Whether the blank line has arrived.
    mutating func read(
        _ bytes: UnsafeRawBufferPointer,
        version: STOMPVersion?,
        limits: STOMPLimits
    ) throws(STOMPViolation) -> Bool {
        let limit = limits.maximumHeaderLength
        // No byte beyond the limit is examined, so that the first error does not depend on how the bytes are split.
        let bytes = UnsafeRawBufferPointer(rebasing: bytes.prefix(limit))
        if !self.hasBegun, let first = bytes.first, !STOMPCommand.mayBegin(first) {
            throw .command(bytes.prefix(1))
        }
        while let end = bytes.firstIndex(of: UInt8(ascii: "\n"), from: self.searched) {
            try self.requireNoNUL(in: bytes, upTo: end)
            self.searched = end + 1
            let line = UnsafeRawBufferPointer(
                rebasing: bytes[self.lineStart..<self.lineEnd(in: bytes, at: end, version: version)]
            )
            if line.isEmpty {
                self.length = end + 1
                return true
            }
            try self.read(line: line, version: version, limits: limits)
            self.lineStart = end + 1
        }
        try self.requireNoNUL(in: bytes, upTo: bytes.count)
        self.searched = bytes.count
        if bytes.count == limit { throw .headersTooLong(limits) }
        return false
    }

    private func requireNoNUL(in bytes: UnsafeRawBufferPointer, upTo end: Int) throws(STOMPViolation) {
        let bytes = UnsafeRawBufferPointer(rebasing: bytes[..<end])
        guard let nul = bytes.firstIndex(of: 0, from: self.searched) else { return }
        throw .nul(UnsafeRawBufferPointer(rebasing: bytes[self.lineStart..<nul]))
    }

    /// The end of a line without its CR, where that belongs to the line's end.
    private func lineEnd(in bytes: UnsafeRawBufferPointer, at end: Int, version: STOMPVersion?) -> Int {
        let dropsCR = version == nil || version == .v1_2
        return dropsCR && end > self.lineStart && bytes[end - 1] == UInt8(ascii: "\r") ? end - 1 : end
    }

    private mutating func read(
        line: UnsafeRawBufferPointer,
        version: STOMPVersion?,
        limits: STOMPLimits
    ) throws(STOMPViolation) {
        guard let command = self.command else {
            guard let command = STOMPCommand(line: line) else { throw .command(line) }
            self.command = command
            self.fields.reserveCapacity(8)
            return
        }
        guard self.fields.count < limits.maximumHeaders else { throw .tooManyHeaders(limits) }
        guard let colon = line.firstIndex(of: UInt8(ascii: ":"), from: 0) else { throw .noColon(line) }
        guard colon > 0 else { throw .noName(line) }
        if let escapes = STOMPEscapes(version, of: command), line.firstIndex(of: UInt8(ascii: "\\"), from: 0) != nil {
            guard escapes.areDefined(in: line) else { throw .escape(line, escapes.version) }
            self.hasEscapes = true
        }
        let start = self.lineStart
        self.fields.append(.init(start: start, colon: start + colon, end: start + line.count))
    }
}

/// The escapes of names and values in one version.
struct STOMPEscapes {
    let version: STOMPVersion

    /// Nil where the headers of such a frame have no escapes.
    init?(_ version: STOMPVersion?, of command: STOMPCommand) {
        guard let version, version != .v1_0, !command.hasPlainHeaders else { return nil }
        self.version = version
    }

    /// The byte that an escape stands for; nil if it is undefined.
    func byte(for letter: UInt8) -> UInt8? {
        switch letter {
        case UInt8(ascii: "n"): UInt8(ascii: "\n")
        case UInt8(ascii: "c"): UInt8(ascii: ":")
        case UInt8(ascii: "\\"): UInt8(ascii: "\\")
        case UInt8(ascii: "r") where self.version == .v1_2: UInt8(ascii: "\r")
        default: nil
        }
    }

    /// The letter that stands for a byte after a backslash; nil if the byte is sent unescaped.
    func letter(for byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "\n"): UInt8(ascii: "n")
        case UInt8(ascii: ":"): UInt8(ascii: "c")
        case UInt8(ascii: "\\"): UInt8(ascii: "\\")
        case UInt8(ascii: "\r") where self.version == .v1_2: UInt8(ascii: "r")
        default: nil
        }
    }

    func areDefined(in line: UnsafeRawBufferPointer) -> Bool {
        var start = 0
        while let backslash = line.firstIndex(of: UInt8(ascii: "\\"), from: start) {
            guard backslash + 1 < line.count, self.byte(for: line[backslash + 1]) != nil else { return false }
            start = backslash + 2
        }
        return true
    }

    /// Returns headers without their escapes, which are defined.
    func unescaped(_ block: ByteBuffer, _ fields: [STOMPHeaders.Field]) -> STOMPHeaders {
        var bytes = ByteBuffer()
        var unescaped: [STOMPHeaders.Field] = []
        unescaped.reserveCapacity(fields.count)
        block.withUnsafeReadableBytes { block in
            for field in fields {
                let start = bytes.readableBytes
                self.write(block[field.start..<field.colon], into: &bytes)
                let colon = bytes.readableBytes
                bytes.writeInteger(UInt8(ascii: ":"))
                self.write(block[(field.colon + 1)..<field.end], into: &bytes)
                unescaped.append(.init(start: start, colon: colon, end: bytes.readableBytes))
            }
        }
        return STOMPHeaders(bytes: bytes, fields: unescaped)
    }

    private func write(_ escaped: Slice<UnsafeRawBufferPointer>, into bytes: inout ByteBuffer) {
        var isEscaped = false
        for byte in escaped {
            if isEscaped {
                bytes.writeInteger(self.byte(for: byte) ?? byte)
                isEscaped = false
            } else if byte == UInt8(ascii: "\\") {
                isEscaped = true
            } else {
                bytes.writeInteger(byte)
            }
        }
    }
}
