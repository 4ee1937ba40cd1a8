// SPDX-License-Identifier: Apache-2.0
/// Reads the elements of the wire format: tags, varints, fixed-size and delimited values. Independent of descriptors.
package struct WireReader {
    private let base: UnsafePointer<UInt8>
    private(set) var cursor: UnsafePointer<UInt8>
    let end: UnsafePointer<UInt8>

    package init(_ bytes: UnsafeRawBufferPointer) {
        // An empty buffer may have no address; any non-null address will do, since nothing is read.
        let start = bytes.baseAddress ?? UnsafeRawPointer(bitPattern: 1).unsafelyUnwrapped
        self.base = start.assumingMemoryBound(to: UInt8.self)
        self.cursor = self.base
        self.end = self.base + bytes.count
    }

    private init(base: UnsafePointer<UInt8>, cursor: UnsafePointer<UInt8>, end: UnsafePointer<UInt8>) {
        self.base = base
        self.cursor = cursor
        self.end = end
    }

    @inline(__always)
    package var isAtEnd: Bool { self.cursor == self.end }

    /// The bytes not read yet.
    var rest: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: self.cursor, count: self.count) }

    /// Whether the bytes not read yet are UTF-8.
    package var isText: Bool { UTF8Validator.isValid(self.rest) }

    @inline(__always)
    private var count: Int { self.end - self.cursor }

    /// The offset of the next byte in the whole message.
    private var offset: Int { self.cursor - self.base }

    package func failure(_ reason: MessageError.Reason) -> WireFailure {
        WireFailure(reason: reason, offset: self.offset)
    }

    /// Reads a tag: a field's number and wire type.
    @inline(__always)
    package mutating func tag() throws(WireFailure) -> (number: UInt32, type: WireType) {
        // Most tags have one byte.
        if !self.isAtEnd, self.cursor.pointee < 0x80, self.cursor.pointee >= 8,
            let type = WireType(rawValue: self.cursor.pointee & 7)
        {
            defer { self.cursor += 1 }
            return (UInt32(self.cursor.pointee >> 3), type)
        }
        return try self.longTag()
    }

    private mutating func longTag() throws(WireFailure) -> (number: UInt32, type: WireType) {
        let start = self.cursor
        let tag = try self.varint()
        // At most five bytes, as in protobuf-c and other implementations.
        guard self.cursor - start <= 5, let type = WireType(rawValue: UInt8(tag & 7)), tag >= 8, tag <= 0xFFFF_FFFF
        else { throw WireFailure(reason: .illegalTag, offset: start - self.base) }
        return (UInt32(tag >> 3), type)
    }

    /// Reads a varint: up to ten bytes of seven bits each, the least significant first.
    @inline(__always)
    package mutating func varint() throws(WireFailure) -> UInt64 {
        // Most numbers are small.
        if !self.isAtEnd, self.cursor.pointee < 0x80 {
            defer { self.cursor += 1 }
            return UInt64(self.cursor.pointee)
        }
        return try self.longVarint()
    }

    private mutating func longVarint() throws(WireFailure) -> UInt64 {
        var value: UInt64 = 0
        var shift: UInt64 = 0
        var next = self.cursor
        while next < self.end {
            let byte = UInt64(next.pointee)
            // Only one bit of the tenth byte fits in 64 bits.
            guard shift < 63 || byte <= 1 else { throw self.failure(.malformedVarint) }
            value |= (byte & 0x7F) << shift
            next += 1
            if byte < 0x80 {
                self.cursor = next
                return value
            }
            shift += 7
        }
        throw self.failure(.truncated)
    }

    @inline(__always)
    mutating func fixed<Number: FixedWidthInteger & BitwiseCopyable>(_ type: Number.Type) throws(WireFailure) -> Number
    {
        guard self.count >= MemoryLayout<Number>.size else { throw self.failure(.truncated) }
        defer { self.cursor += MemoryLayout<Number>.size }
        return Number(littleEndian: UnsafeRawPointer(self.cursor).loadUnaligned(as: Number.self))
    }

    /// Reads a length and returns a reader of the bytes that it delimits.
    @inline(__always)
    package mutating func delimited() throws(WireFailure) -> WireReader {
        let length = try self.varint()
        guard length <= UInt64(self.count) else { throw self.failure(.truncated) }
        let start = self.cursor
        self.cursor += Int(length)
        return WireReader(base: self.base, cursor: start, end: self.cursor)
    }

    /// Skips a value.
    @inline(__always)
    package mutating func skip(_ type: WireType) throws(WireFailure) {
        switch type {
        case .varint: _ = try self.varint()
        case .fixed32: _ = try self.fixed(UInt32.self)
        case .fixed64: _ = try self.fixed(UInt64.self)
        case .lengthDelimited: _ = try self.delimited()
        case .startGroup, .endGroup: throw self.failure(.group)
        }
    }
}

/// An error in the wire format and its offset. Callers that know the message turn it into a ``MessageError``.
package struct WireFailure: Error {
    package var reason: MessageError.Reason
    package var offset: Int
}
