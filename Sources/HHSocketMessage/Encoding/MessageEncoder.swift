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
            if let place = self.take(1) { place.pointee = UInt8(truncatingIfNeeded: value) }
        } else {
            self.prepend(longVarint: value)
        }
    }

    @usableFromInline
    @inline(never)
    mutating func prepend(longVarint value: UInt64) {
        let count = (70 - (value | 1).leadingZeroBitCount) / 7
        guard var place = self.take(count) else { return }
        var rest = value
        while rest >= 0x80 {
            place.pointee = UInt8(truncatingIfNeeded: rest) | 0x80
            place += 1
            rest >>= 7
        }
        place.pointee = UInt8(truncatingIfNeeded: rest)
    }

    @inlinable
    @inline(__always)
    mutating func prepend(fixed value: some FixedWidthInteger & BitwiseCopyable) {
        let count = value.bitWidth / 8
        guard let place = self.take(count) else { return }
        UnsafeMutableRawPointer(place).storeBytes(of: value.littleEndian, as: type(of: value))
    }

    @inlinable
    mutating func prepend(bytes: UnsafeRawBufferPointer) {
        guard let source = bytes.baseAddress, bytes.count > 0, let place = self.take(bytes.count) else { return }
        UnsafeMutableRawPointer(place).copyMemory(from: source, byteCount: bytes.count)
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
    public mutating func value<Coding: WireCoding>(_ tag: UInt32, _ value: Coding.Value, _ coding: Coding.Type) {
        if Coding.isZero(value) { return }
        Coding.encode(value, to: &self)
        self.prepend(tag: tag)
    }

    /// Writes a value unless it is nil.
    @inlinable
    public mutating func optional<Coding: WireCoding>(_ tag: UInt32, _ value: Coding.Value?, _ coding: Coding.Type) {
        guard let value else { return }
        Coding.encode(value, to: &self)
        self.prepend(tag: tag)
    }

    /// Writes values, each with a tag.
    @inlinable
    public mutating func values<Coding: WireCoding>(_ tag: UInt32, _ values: [Coding.Value], _ coding: Coding.Type) {
        var index = values.count
        while index > 0 {
            index -= 1
            Coding.encode(values[index], to: &self)
            self.prepend(tag: tag)
        }
    }

    /// Writes values with one tag and one length.
    @inlinable
    public mutating func packed<Coding: PackedCoding>(_ tag: UInt32, _ values: [Coding.Value], _ coding: Coding.Type) {
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

    // MARK: Messages

    /// Writes a message unless it is nil.
    @inlinable
    public mutating func message<Message: ProtobufMessage>(_ tag: UInt32, _ message: Message?) {
        guard let message else { return }
        self.prepend(tag, message)
    }

    /// Writes messages.
    @inlinable
    public mutating func messages<Message: ProtobufMessage>(_ tag: UInt32, _ messages: [Message]) {
        var index = messages.count
        while index > 0 {
            index -= 1
            self.prepend(tag, messages[index])
        }
    }

    /// Writes a group unless it is nil.
    ///
    /// - Parameter tag: The tag at its beginning.
    @inlinable
    public mutating func group<Message: ProtobufMessage>(_ tag: UInt32, _ message: Message?) {
        guard let message else { return }
        guard self.levels > 0 else { return self.failForDepth(in: Message.messageDescriptor) }
        self.levels -= 1
        // The tag at the end is the next one.
        self.prepend(tag: tag + 1)
        message.encode(to: &self)
        self.prepend(tag: tag)
        self.levels += 1
    }

    /// Writes groups.
    @inlinable
    public mutating func groups<Message: ProtobufMessage>(_ tag: UInt32, _ messages: [Message]) {
        for message in messages.reversed() { self.group(tag, message) }
    }

    /// Writes the fields of a message that keeps them on the heap.
    @inlinable
    public mutating func fields<Fields: MessageFields>(_ stored: HeapStored<Fields>) {
        stored.box?.fields.encode(to: &self)
    }

    /// Not inlinable, since it would be compiled for each type, and be no faster.
    @usableFromInline
    mutating func prepend<Message: ProtobufMessage>(_ tag: UInt32, _ message: borrowing Message) {
        guard self.levels > 0 else { return self.failForDepth(in: Message.messageDescriptor) }
        self.levels -= 1
        let end = self.count
        message.encode(to: &self)
        self.prepend(varint: UInt64(self.count - end))
        self.prepend(tag: tag)
        self.levels += 1
    }

    @usableFromInline
    @inline(never)
    mutating func failForDepth(in descriptor: MessageDescriptor) {
        self.fail(MessageError(.tooDeep(limit: MessageLimits.encodedDepth), in: descriptor.name))
    }

    mutating func fail(_ error: MessageError) {
        if self.failure == nil { self.failure = CodingFailure(error) }
    }

    // MARK: Maps

    /// Writes the entries of a map whose values are not messages.
    @_specialize(where Key == WireString, Value == WireString)
    @_specialize(where Key == WireString, Value == WireInt32)
    @_specialize(where Key == WireString, Value == WireInt64)
    @_specialize(where Key == WireString, Value == WireDouble)
    @_specialize(where Key == WireString, Value == WireBool)
    @_specialize(where Key == WireString, Value == WireBytes)
    @_specialize(where Key == WireInt32, Value == WireString)
    @_specialize(where Key == WireInt64, Value == WireString)
    public mutating func map<Key: WireKeyCoding, Value: WireCoding>(
        _ tag: UInt32,
        _ map: [Key.Value: Value.Value],
        _ keys: Key.Type,
        _ values: Value.Type
    ) {
        self.entries(map, keys) { (encoder, key, value) in
            let end = encoder.count
            Value.encode(value, to: &encoder)
            encoder.prepend(tag: 2 << 3 | Value.wireType)
            encoder.finishEntry(key, keys, from: end, tag)
        }
    }

    /// Writes the entries of a map whose values are messages.
    @_specialize(kind:partial,where Key == WireString)
    @_specialize(kind:partial,where Key == WireInt32)
    @_specialize(kind:partial,where Key == WireInt64)
    @_specialize(kind:partial,where Key == WireUInt32)
    @_specialize(kind:partial,where Key == WireUInt64)
    public mutating func messageMap<Key: WireKeyCoding, Message: ProtobufMessage>(
        _ tag: UInt32,
        _ map: [Key.Value: Message],
        _ keys: Key.Type
    ) {
        if map.isEmpty { return }
        // The entry is a level, and its message is another.
        guard self.levels > 0 else { return self.failForDepth(in: Message.messageDescriptor) }
        self.levels -= 1
        self.entries(map, keys) { (encoder, key, message) in
            let end = encoder.count
            encoder.prepend(2 << 3 | 2, message)
            encoder.finishEntry(key, keys, from: end, tag)
        }
        self.levels += 1
    }

    mutating func finishEntry<Key: WireKeyCoding>(_ key: Key.Value, _ keys: Key.Type, from end: Int, _ tag: UInt32) {
        Key.encode(key, to: &self)
        self.prepend(tag: 1 << 3 | Key.wireType)
        self.prepend(varint: UInt64(self.count - end))
        self.prepend(tag: tag)
    }

    mutating func entries<Key: WireKeyCoding, Value>(
        _ map: [Key.Value: Value],
        _ keys: Key.Type,
        _ encode: (inout MessageEncoder, Key.Value, Value) -> Void
    ) {
        guard self.isCanonical else {
            for (key, value) in map { encode(&self, key, value) }
            return
        }
        for key in Self.fromLastToFirst(Array(map.keys), keys) {
            if let value = map[key] { encode(&self, key, value) }
        }
    }

    private static func fromLastToFirst<Key: WireKeyCoding>(_ values: [Key.Value], _ keys: Key.Type) -> [Key.Value] {
        values.sorted { keys.precedes($1, $0) }
    }
}
