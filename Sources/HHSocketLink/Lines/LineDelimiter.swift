// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The bytes between two lines.
public struct LineDelimiter: Hashable, Sendable {
    /// The longest delimiter, in bytes: 64.
    package static let maximumLength = 64

    /// LF, as Unix ends lines. A CR before it belongs to the line.
    public static let lf = LineDelimiter([0x0A])
    /// CR LF. A single CR or LF belongs to the line.
    public static let crlf = LineDelimiter([0x0D, 0x0A])
    /// A received line ends at LF or at CR LF; a sent line ends with LF.
    public static let lfOrCRLF = LineDelimiter([0x0A], dropsCR: true)
    /// A zero byte.
    public static let nul = LineDelimiter([0])

    /// The bytes after each sent line; at least one.
    package let bytes: [UInt8]
    /// Whether a CR before the delimiter is a part of it.
    let dropsCR: Bool

    private init(_ bytes: [UInt8], dropsCR: Bool = false) {
        self.bytes = bytes
        self.dropsCR = dropsCR
    }

    /// Creates a delimiter of any bytes.
    ///
    /// - Throws: ``SocketError`` with code `invalidArgument` unless there are 1 to 64 of them.
    public init(bytes: some Sequence<UInt8>) throws(SocketError) {
        let bytes = Array(bytes)
        guard (1...Self.maximumLength).contains(bytes.count) else {
            throw .invalid("a delimiter has 1 to \(Self.maximumLength) bytes, not \(bytes.count)")
        }
        self.init(bytes)
    }
}

extension LineDelimiter {
    /// Returns the end of the first delimiter that ends after `start`, as the offset of the byte after it; nil if there
    /// is none. The delimiter may begin before `start`.
    func end(in bytes: UnsafeRawBufferPointer, from start: Int) -> Int? {
        guard let last = self.bytes.last else { return nil }
        var index = start
        while index < bytes.count, let found = bytes.firstIndex(of: last, from: index) {
            let begin = found + 1 - self.bytes.count
            if begin >= 0, self.bytes.count == 1 || bytes[begin...found].elementsEqual(self.bytes) { return found + 1 }
            index = found + 1
        }
        return nil
    }

    /// The number of bytes at the end of `bytes` that may be the beginning of a delimiter.
    func unfinishedLength(atEndOf bytes: UnsafeRawBufferPointer) -> Int {
        if self.dropsCR { return bytes.last == 0x0D ? 1 : 0 }
        let longest = min(self.bytes.count - 1, bytes.count)
        return (0...longest).reversed().first { bytes.suffix($0).elementsEqual(self.bytes.prefix($0)) } ?? 0
    }

    /// Whether a line would be read as several, or as another one: it contains the delimiter, or its end and the
    /// delimiter's beginning do.
    package func occurs(in line: ByteBuffer) -> Bool {
        let isInside = line.withUnsafeReadableBytes { self.end(in: $0, from: 0) } != nil
        guard !isInside, self.bytes.count > 1 else { return isInside }
        let tail = Array(line.readableBytesView.suffix(self.bytes.count - 1)) + self.bytes
        return tail.withUnsafeBytes { self.end(in: $0, from: 0) } != tail.count
    }
}

extension LineDelimiter: CustomStringConvertible {
    /// `lf`, `crlf`, `any`, `nul`, or the bytes in hexadecimal.
    public var description: String {
        switch self {
        case .lf: "lf"
        case .crlf: "crlf"
        case .lfOrCRLF: "any"
        case .nul: "nul"
        default: self.bytes.hexadecimal
        }
    }

    /// Creates a delimiter from `lf`, `crlf`, `any` (LF or CR LF), `nul`, or bytes in hexadecimal, such as `0d0a`; nil
    /// for anything else.
    package init?(_ text: some StringProtocol) {
        switch text {
        case "lf": self = .lf
        case "crlf": self = .crlf
        case "any": self = .lfOrCRLF
        case "nul": self = .nul
        default:
            guard let bytes = [UInt8](hexadecimal: text), let delimiter = try? LineDelimiter(bytes: bytes) else {
                return nil
            }
            self = delimiter
        }
    }
}
