// SPDX-License-Identifier: Apache-2.0
// Fields that contain messages: messages, groups and maps.

extension MessageEncoder {
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
        keys: Key.Type,
        values: Value.Type
    ) {
        self.entries(of: map, keys: keys) { (encoder, key, value) in
            let end = encoder.count
            Value.encode(value, to: &encoder)
            encoder.prepend(tag: 2 << 3 | Value.wireType)
            encoder.finishEntry(key, keys: keys, from: end, tag: tag)
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
        keys: Key.Type
    ) {
        if map.isEmpty { return }
        // The entry is a level, and its message is another.
        guard self.levels > 0 else { return self.failForDepth(in: Message.messageDescriptor) }
        self.levels -= 1
        self.entries(of: map, keys: keys) { (encoder, key, message) in
            let end = encoder.count
            encoder.prepend(2 << 3 | 2, message)
            encoder.finishEntry(key, keys: keys, from: end, tag: tag)
        }
        self.levels += 1
    }

    mutating func finishEntry<Key: WireKeyCoding>(_ key: Key.Value, keys: Key.Type, from end: Int, tag: UInt32) {
        Key.encode(key, to: &self)
        self.prepend(tag: 1 << 3 | Key.wireType)
        self.prepend(varint: UInt64(self.count - end))
        self.prepend(tag: tag)
    }

    mutating func entries<Key: WireKeyCoding, Value>(
        of map: [Key.Value: Value],
        keys: Key.Type,
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
