// SPDX-License-Identifier: Apache-2.0
/// Nested messages.
@_documentation(visibility: internal)
extension MessageDecoder {
    /// Enters a nested message, which a length delimits.
    ///
    /// - Returns: The end of the enclosing message; nil after an error.
    @inlinable
    @inline(__always)
    mutating func enter(isLevel: Bool = true) -> UnsafePointer<UInt8>? {
        let inner = self.delimited()
        if self.hasFailed { return nil }
        if isLevel {
            guard self.levels > 0 else {
                self.failForDepth()
                return nil
            }
            self.levels -= 1
        }
        let outer = self.end
        self.end = self.cursor
        self.cursor -= inner.count
        return outer
    }

    /// Continues after the message that was entered.
    @inlinable
    @inline(__always)
    mutating func exit(to outer: UnsafePointer<UInt8>, isLevel: Bool = true) {
        if isLevel { self.levels += 1 }
        self.end = outer
        if self.hasFailed { self.cursor = outer }
    }

    /// Reads a message, and merges it with an existing one.
    @inlinable
    public mutating func message<Message: ProtobufMessage>(_ message: inout Message?) {
        if message == nil { message = Message() }
        message?.decode(within: &self)
    }

    /// Reads an element of a repeated message.
    @inlinable
    @inline(never)
    public mutating func messages<Message: ProtobufMessage>(_ messages: inout [Message]) {
        if messages.isEmpty { messages.reserveCapacity(self.countOfRun()) }
        self.charge(MemoryLayout<Message>.stride)
        if self.hasFailed { return }
        messages.append(Message())
        messages[messages.count - 1].decode(within: &self)
    }

    /// The number of consecutive delimited values with the tag that was just read, so that their array need not grow.
    /// At most 1,024 are counted, so that a message that is about to fail allocates little.
    @usableFromInline
    func countOfRun() -> Int {
        let (tagLength, end) = (self.cursor - self.field, self.end)
        var (next, count) = (self.cursor, 0)
        while count < 1_024 {
            // A value that ends beyond the message, or a length of three bytes or more, ends the run.
            guard next < end else { return count + 1 }
            var length = Int(next.pointee)
            next += 1
            if length >= 0x80 {
                guard next < end, next.pointee < 0x80 else { return count + 1 }
                length = length & 0x7F | Int(next.pointee) << 7
                next += 1
            }
            count += 1
            guard length < end - next - tagLength else { return count }
            next += length
            for index in 0..<tagLength where next[index] != self.field[index] { return count }
            next += tagLength
        }
        return count
    }

    /// Reads the fields of a message that keeps them on the heap.
    @inlinable
    @inline(never)
    public mutating func fields<Fields: MessageFields>(_ stored: inout HeapStored<Fields>) {
        guard self.cursor < self.end else { return }
        // With the object's header.
        if stored.box == nil { self.charge(MemoryLayout<Fields>.size + 16) }
        if self.hasFailed { return }
        stored.fields.decode(from: &self)
    }

    // MARK: Maps

    /// Reads an entry of a map whose values are not messages.
    @_specialize(where Key == WireString, Value == WireString)
    @_specialize(where Key == WireString, Value == WireInt32)
    @_specialize(where Key == WireString, Value == WireInt64)
    @_specialize(where Key == WireString, Value == WireDouble)
    @_specialize(where Key == WireString, Value == WireBool)
    @_specialize(where Key == WireString, Value == WireBytes)
    @_specialize(where Key == WireInt32, Value == WireString)
    @_specialize(where Key == WireInt64, Value == WireString)
    public mutating func map<Key: WireKeyCoding, Value: WireCoding>(
        _ map: inout [Key.Value: Value.Value],
        keys: Key.Type,
        values: Value.Type
    ) {
        let field = self.field
        // Nothing is nested in such an entry, so it does not count as a level.
        guard let outer = self.enter(isLevel: false) else { return }
        var (key, value) = (Key.zero, Value.zero)
        while let tag = self.nextTag() {
            switch tag {
            case 1 << 3 | Key.wireType: key = Key.decode(from: &self)
            case 2 << 3 | Value.wireType: value = Value.decode(from: &self)
            default: self.skip(tag)
            }
        }
        self.exit(to: outer, isLevel: false)
        if self.hasFailed { return self.attribute(toFieldAt: field) }
        self.chargeForEntry(of: map)
        map[key] = value
    }

    /// Reads an entry of a map whose values are of an enumeration. One with a number that a closed enumeration does not
    /// know is kept as an unknown field, with its key.
    @_specialize(kind:partial,where Key == WireString)
    @_specialize(kind:partial,where Key == WireInt32)
    @_specialize(kind:partial,where Key == WireInt64)
    @_specialize(kind:partial,where Key == WireUInt32)
    @_specialize(kind:partial,where Key == WireUInt64)
    public mutating func enumMap<Key: WireKeyCoding, Value: ProtobufEnum>(
        _ map: inout [Key.Value: Value],
        keys: Key.Type,
        unknown: inout UnknownStorage
    ) {
        let field = self.field
        guard let outer = self.enter(isLevel: false) else { return }
        var (key, value, isKnown) = (Key.zero, Value(), true)
        while let tag = self.nextTag() {
            switch tag {
            case 1 << 3 | Key.wireType: key = Key.decode(from: &self)
            case 2 << 3 | WireEnum<Value>.wireType:
                let known = WireEnum<Value>.decodeKnown(from: &self)
                isKnown = known != nil
                value = known ?? value
            default: self.skip(tag)
            }
        }
        self.exit(to: outer, isLevel: false)
        if self.hasFailed { return self.attribute(toFieldAt: field) }
        guard isKnown else { return self.keep(field, in: &unknown) }
        self.chargeForEntry(of: map)
        map[key] = value
    }

    /// Reads an entry of a map whose values are messages.
    @_specialize(kind:partial,where Key == WireString)
    @_specialize(kind:partial,where Key == WireInt32)
    @_specialize(kind:partial,where Key == WireInt64)
    @_specialize(kind:partial,where Key == WireUInt32)
    @_specialize(kind:partial,where Key == WireUInt64)
    public mutating func messageMap<Key: WireKeyCoding, Message: ProtobufMessage>(
        _ map: inout [Key.Value: Message],
        keys: Key.Type
    ) {
        let field = self.field
        guard let outer = self.enter() else { return }
        var key = Key.zero
        var value: Message?
        while let tag = self.nextTag() {
            switch tag {
            case 1 << 3 | Key.wireType: key = Key.decode(from: &self)
            case 2 << 3 | 2: self.message(&value)
            default: self.skip(tag)
            }
        }
        self.exit(to: outer)
        if self.hasFailed { return self.attribute(toFieldAt: field) }
        self.chargeForEntry(of: map)
        map[key] = value ?? Message()
    }

    /// A dictionary has a third more places than entries, and a bit for each.
    mutating func chargeForEntry<Key, Value>(of map: [Key: Value]) {
        self.charge((MemoryLayout<Key>.stride + MemoryLayout<Value>.stride) * 4 / 3 + 1)
    }
}

extension ProtobufMessage {
    /// Reads a nested message, starting with its length.
    ///
    /// Not inlinable, since it would be compiled for each type, and be no faster.
    @usableFromInline
    mutating func decode(within decoder: inout MessageDecoder) {
        guard let outer = decoder.enter() else { return }
        self.decode(from: &decoder)
        if decoder.hasFailed { decoder.attribute(to: Self.messageDescriptor) }
        decoder.exit(to: outer)
    }
}
