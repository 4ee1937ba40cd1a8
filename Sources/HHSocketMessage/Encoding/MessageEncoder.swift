// SPDX-License-Identifier: Apache-2.0
/// Writes the fields of a message, from the last to the first, so that each length is known when it is written.
///
/// Used by generated code, which calls it for the fields in descending order. If the memory does not suffice, the
/// encoder continues and counts, so that the second attempt has enough. No function here throws; the first error is
/// kept until the end.
@frozen
@_documentation(visibility: internal)
public struct MessageEncoder: ~Copyable {
    /// The first byte that has been written.
    @usableFromInline var cursor: UnsafeMutablePointer<UInt8>
    /// The beginning of the memory; the cursor once something did not fit.
    @usableFromInline var start: UnsafeMutablePointer<UInt8>
    @usableFromInline let end: UnsafeMutablePointer<UInt8>
    /// The number of bytes that did not fit.
    @usableFromInline var missing = 0
    /// The number of further levels of nested messages that are allowed.
    @usableFromInline var levels: Int
    /// Whether the entries of maps are sorted by key.
    @usableFromInline let isCanonical: Bool
    /// The first error.
    @usableFromInline var failure: CodingFailure?

    @inlinable
    @inline(__always)
    init(_ memory: UnsafeMutableRawBufferPointer, isCanonical: Bool) {
        // An empty buffer may have no address; any non-null address will do, since nothing is written.
        let start = memory.baseAddress ?? UnsafeMutableRawPointer(bitPattern: 1).unsafelyUnwrapped
        self.start = start.assumingMemoryBound(to: UInt8.self)
        self.end = self.start + memory.count
        self.cursor = self.end
        self.isCanonical = isCanonical
        self.levels = MessageLimits.encodedDepth - 1
    }

    /// The number of bytes that have been encoded.
    @inlinable
    @inline(__always)
    var count: Int { self.end - self.cursor + self.missing }

    // MARK: Bytes

    /// Reserves space for bytes before the written ones; nil if there is none.
    @inlinable
    @inline(__always)
    mutating func take(_ count: Int) -> UnsafeMutablePointer<UInt8>? {
        guard self.cursor - self.start >= count else {
            self.miss(count)
            return nil
        }
        self.cursor -= count
        return self.cursor
    }

    @usableFromInline
    @inline(never)
    mutating func miss(_ count: Int) {
        self.missing += count
        // Shorter fields must not be written behind a gap.
        self.start = self.cursor
    }

    @inlinable
    @inline(__always)
    mutating func prepend(varint value: UInt64) {
        if value < 0x80 {
            if let target = self.take(1) { target.pointee = UInt8(truncatingIfNeeded: value) }
        } else {
            self.prepend(longVarint: value)
        }
    }

    @usableFromInline
    @inline(never)
    mutating func prepend(longVarint value: UInt64) {
        let count = (70 - (value | 1).leadingZeroBitCount) / 7
        guard var target = self.take(count) else { return }
        var rest = value
        while rest >= 0x80 {
            target.pointee = UInt8(truncatingIfNeeded: rest) | 0x80
            target += 1
            rest >>= 7
        }
        target.pointee = UInt8(truncatingIfNeeded: rest)
    }

    @inlinable
    @inline(__always)
    mutating func prepend(fixed value: some FixedWidthInteger & BitwiseCopyable) {
        let count = value.bitWidth / 8
        guard let target = self.take(count) else { return }
        UnsafeMutableRawPointer(target).storeBytes(of: value.littleEndian, as: type(of: value))
    }

    @inlinable
    mutating func prepend(bytes: UnsafeRawBufferPointer) {
        guard let source = bytes.baseAddress, bytes.count > 0, let target = self.take(bytes.count) else { return }
        UnsafeMutableRawPointer(target).copyMemory(from: source, byteCount: bytes.count)
    }

    mutating func prepend(text: String) {
        // Without a copy of the string, whose reference would be counted.
        let count = text.utf8.withContiguousStorageIfAvailable { bytes in
            self.prepend(bytes: UnsafeRawBufferPointer(bytes))
            return bytes.count
        }
        if let count { return self.prepend(varint: UInt64(count)) }
        // A string of Objective-C.
        var text = text
        text.makeContiguousUTF8()
        self.prepend(text: text)
    }

    /// Writes a field's number and wire type.
    @inlinable
    @inline(__always)
    mutating func prepend(tag: UInt32) { self.prepend(varint: UInt64(tag)) }

    // MARK: Values

    /// Writes a value unless it is zero.
    @inlinable
    public mutating func value<Coding: WireCoding>(_ tag: UInt32, _ value: Coding.Value, as coding: Coding.Type) {
        if Coding.isZero(value) { return }
        Coding.encode(value, to: &self)
        self.prepend(tag: tag)
    }

    /// Writes a value unless it is nil.
    @inlinable
    public mutating func optional<Coding: WireCoding>(_ tag: UInt32, _ value: Coding.Value?, as coding: Coding.Type) {
        guard let value else { return }
        Coding.encode(value, to: &self)
        self.prepend(tag: tag)
    }

    /// Writes values, each with a tag.
    @inlinable
    public mutating func values<Coding: WireCoding>(_ tag: UInt32, _ values: [Coding.Value], as coding: Coding.Type) {
        var index = values.count
        while index > 0 {
            index -= 1
            Coding.encode(values[index], to: &self)
            self.prepend(tag: tag)
        }
    }

    /// Writes values with one tag and one length.
    @inlinable
    public mutating func packed<Coding: PackedCoding>(_ tag: UInt32, _ values: [Coding.Value], as coding: Coding.Type) {
        if values.isEmpty { return }
        let end = self.count
        Coding.encodePacked(values, to: &self)
        self.prepend(varint: UInt64(self.count - end))
        self.prepend(tag: tag)
    }

    /// Writes the fields that the message does not know.
    @inlinable
    public mutating func unknown(_ storage: UnknownStorage) {
        if storage.isEmpty { return }
        storage.bytes.withUnsafeBytes { self.prepend(bytes: $0) }
    }

    @usableFromInline
    @inline(never)
    mutating func failForDepth(in descriptor: MessageDescriptor) {
        self.fail(MessageError(.tooDeep(limit: MessageLimits.encodedDepth), in: descriptor.name))
    }

    mutating func fail(_ error: MessageError) {
        if self.failure == nil { self.failure = CodingFailure(error) }
    }
}
