// SPDX-License-Identifier: Apache-2.0
/// Reads the fields of a message from its bytes, directly into the message.
///
/// Used by generated code:
/// ```swift
/// mutating func decode(from decoder: inout MessageDecoder) {
///     while let tag = decoder.nextTag() {
///         switch tag {
///         case 10: decoder.value(&self.name, WireString.self)
///         default: decoder.unknown(tag, &self.unknownFields)
///         }
///     }
/// }
/// ```
/// After an error there are no more fields, and values are zero; the first error is thrown at the end. So no function
/// here throws, and none reads beyond the innermost message.
@frozen
@_documentation(visibility: internal)
public struct MessageDecoder: ~Copyable {
    /// The next byte.
    @usableFromInline var cursor: UnsafePointer<UInt8>
    /// The end of the innermost message.
    @usableFromInline var end: UnsafePointer<UInt8>
    /// The beginning of the field that is being read: its tag.
    @usableFromInline var field: UnsafePointer<UInt8>
    /// The beginning of the outermost message.
    @usableFromInline let start: UnsafePointer<UInt8>
    /// The number of further levels of nested messages that are allowed.
    @usableFromInline var levels: Int
    /// The number of bytes that may still be allocated.
    @usableFromInline var memory: Int
    /// The limits, which errors contain.
    @usableFromInline let depthLimit: Int
    @usableFromInline let memoryLimit: Int
    @usableFromInline var failure: CodingFailure?
    /// The group that is being read: the innermost one.
    @usableFromInline var group = OpenGroup(end: 0, levels: 0)

    @inlinable var hasFailed: Bool { self.failure != nil }

    /// Inlinable, since copying its many words would take longer than reading some fields.
    @inlinable
    @inline(__always)
    init(_ bytes: UnsafeRawBufferPointer, _ limits: MessageLimits) {
        // An empty buffer may have no address; any non-null address will do, since nothing is read.
        let start = bytes.baseAddress ?? UnsafeRawPointer(bitPattern: 1).unsafelyUnwrapped
        self.start = start.assumingMemoryBound(to: UInt8.self)
        self.cursor = self.start
        self.field = self.start
        self.end = self.start + bytes.count
        self.depthLimit = limits.depth
        self.levels = limits.depth - 1
        self.memoryLimit = limits.memory(forLength: bytes.count)
        self.memory = self.memoryLimit
        if bytes.count > MessageLimits.length { self.fail(.tooLarge, at: nil) }
    }

    // MARK: Errors

    /// Records an error, and ends the decoding.
    ///
    /// - Parameter position: The position of the error; nil if it has none.
    @usableFromInline
    @inline(never)
    mutating func fail(_ reason: MessageError.Reason, at position: UnsafePointer<UInt8>?) {
        if self.failure == nil {
            self.failure = CodingFailure(MessageError(reason, in: "", at: position.map { $0 - self.start }))
            self.attribute(toFieldAt: self.field)
        }
        self.cursor = self.end
    }

    /// Records the innermost message that contains an error, unless one is recorded.
    @usableFromInline
    @inline(never)
    mutating func attribute(to descriptor: MessageDescriptor) {
        guard let failure = self.failure, failure.hasNoMessage else { return }
        failure.attribute(to: descriptor)
    }

    /// Records the field that contains an error: for a map's entry, the map.
    mutating func attribute(toFieldAt field: UnsafePointer<UInt8>) {
        guard let failure = self.failure, failure.hasNoMessage else { return }
        // Its tag was read before, so it exists.
        var tag = WireReader(UnsafeRawBufferPointer(start: field, count: self.end - field))
        failure.attribute(toField: (try? tag.tag())?.number ?? 0)
    }

    /// Charges memory that is about to be allocated.
    ///
    /// - Parameter bytes: The number of bytes.
    @inlinable
    @inline(__always)
    mutating func charge(_ bytes: Int) {
        self.memory -= bytes
        if self.memory < 0 { self.failForMemory() }
    }

    @usableFromInline
    @inline(never)
    mutating func failForMemory() {
        self.fail(.needsTooMuchMemory(limit: self.memoryLimit), at: nil)
    }

    // MARK: Tags and numbers

    /// The next field's number and wire type, as they are on the wire; nil at the end of the message.
    @inlinable
    @inline(__always)
    public mutating func nextTag() -> UInt32? {
        self.field = self.cursor
        guard self.cursor < self.end else { return nil }
        let first = self.cursor.pointee
        // The tags of the fields 1 to 15 have one byte.
        guard first < 0x80, first >= 8 else { return self.longTag() }
        self.cursor += 1
        return UInt32(first)
    }

    @usableFromInline
    @inline(never)
    mutating func longTag() -> UInt32? {
        let tag = self.varint()
        if self.hasFailed { return nil }
        // At most five bytes, as in other implementations.
        guard self.cursor - self.field <= 5, tag >= 8, tag <= 0xFFFF_FFFF else {
            self.fail(.illegalTag, at: self.field)
            return nil
        }
        return UInt32(tag)
    }

    /// Up to ten bytes of seven bits each, the least significant first.
    @inlinable
    @inline(__always)
    mutating func varint() -> UInt64 {
        // Most numbers are small.
        if self.cursor < self.end, self.cursor.pointee < 0x80 {
            defer { self.cursor += 1 }
            return UInt64(self.cursor.pointee)
        }
        return self.longVarint()
    }

    @usableFromInline
    @inline(never)
    mutating func longVarint() -> UInt64 {
        // Most numbers that have more than one byte have two.
        if self.end - self.cursor >= 2, self.cursor[0] >= 0x80, self.cursor[1] < 0x80 {
            defer { self.cursor += 2 }
            return UInt64(self.cursor[0] & 0x7F) | UInt64(self.cursor[1]) << 7
        }
        var value: UInt64 = 0
        var shift: UInt64 = 0
        var next = self.cursor
        while next < self.end {
            let byte = UInt64(next.pointee)
            // Only one bit of the tenth byte fits in 64 bits.
            guard shift < 63 || byte <= 1 else {
                self.fail(.malformedVarint, at: self.cursor)
                return 0
            }
            value |= (byte & 0x7F) << shift
            next += 1
            if byte < 0x80 {
                self.cursor = next
                return value
            }
            shift += 7
        }
        self.fail(.truncated, at: self.cursor)
        return 0
    }

    @inlinable
    @inline(__always)
    mutating func fixed<Number: FixedWidthInteger & BitwiseCopyable>(_ type: Number.Type) -> Number {
        guard self.end - self.cursor >= MemoryLayout<Number>.size else {
            self.fail(.truncated, at: self.cursor)
            return 0
        }
        defer { self.cursor += MemoryLayout<Number>.size }
        return Number(littleEndian: UnsafeRawPointer(self.cursor).loadUnaligned(as: Number.self))
    }

    /// Reads a length, and the bytes that it delimits.
    @inlinable
    @inline(__always)
    mutating func delimited() -> UnsafeBufferPointer<UInt8> {
        let length = self.varint()
        guard length <= UInt64(UInt(bitPattern: self.end - self.cursor)) else {
            self.fail(.truncated, at: self.cursor)
            return UnsafeBufferPointer(start: nil, count: 0)
        }
        defer { self.cursor += Int(truncatingIfNeeded: length) }
        return UnsafeBufferPointer(start: self.cursor, count: Int(truncatingIfNeeded: length))
    }

    // MARK: Unknown fields

    /// Stores a field that the message does not know, or whose wire type is not that of its kind.
    public mutating func unknown(_ tag: UInt32, _ storage: inout UnknownStorage) {
        if tag & 7 == WireType.endGroup.rawValue, self.endGroup(tag) { return }
        // In a group, there are other fields.
        let field = self.field
        self.skip(tag)
        self.keep(field, in: &storage)
    }

    /// Stores the field from its tag to the next byte, unless there was an error.
    @usableFromInline
    @inline(never)
    mutating func keep(_ field: UnsafePointer<UInt8>, in storage: inout UnknownStorage) {
        if self.hasFailed { return }
        let bytes = UnsafeBufferPointer(start: field, count: self.cursor - field)
        self.charge(bytes.count)
        storage.bytes.append(contentsOf: bytes)
    }

    /// Stores a number that was received packed, unchanged, with a separate tag.
    @usableFromInline
    @inline(never)
    mutating func keep(_ field: UInt32, varint: UnsafeBufferPointer<UInt8>, in storage: inout UnknownStorage) {
        // A tag has up to five bytes.
        self.charge(varint.count + 5)
        if !self.hasFailed { storage.append(number: field, varint: varint) }
    }

    /// Skips the value of the field that is being read.
    mutating func skip(_ tag: UInt32) {
        let field = self.field
        switch WireType(rawValue: UInt8(tag & 7)) {
        case .varint: _ = self.varint()
        case .fixed32: _ = self.fixed(UInt32.self)
        case .fixed64: _ = self.fixed(UInt64.self)
        case .lengthDelimited: _ = self.delimited()
        case .startGroup: self.skipGroup(tag >> 3)
        case .endGroup, nil: self.fail(.illegalTag, at: field)
        }
    }

    /// Skips fields up to the end of a group.
    private mutating func skipGroup(_ number: UInt32) {
        guard self.levels > 0 else { return self.failForDepth() }
        self.levels -= 1
        while let tag = self.nextTag() {
            if tag == number << 3 | UInt32(WireType.endGroup.rawValue) {
                self.levels += 1
                return
            }
            self.skip(tag)
        }
        self.fail(.truncated, at: self.cursor)
    }

    @usableFromInline
    @inline(never)
    mutating func failForDepth() { self.fail(.tooDeep(limit: self.depthLimit), at: nil) }
}
