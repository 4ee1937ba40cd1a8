/// Values of extensions, which are among the fields that a message does not know. Used by generated code.
///
/// A value that cannot be read is none: one with another wire type, text that is not UTF-8, a message that is malformed
/// or too deep, and a number that a closed enumeration does not declare.
@_documentation(visibility: internal)
extension UnknownStorage {
    // MARK: Values

    /// Returns the value of an extension: the last one.
    public func value<Coding: WireCoding>(_ number: UInt32, _ coding: Coding.Type) -> Coding.Value? {
        self.read(number) { decoder, tag, value in
            guard tag & 7 == Coding.wireType else { return decoder.skip(tag) }
            let read = Coding.decode(from: &decoder)
            if !decoder.hasFailed { value = read }
        }
    }

    /// Returns the value of an extension of an enumeration: the last one that is declared.
    public func enumeration<Enum: ProtobufEnum>(_ number: UInt32, _ type: Enum.Type) -> Enum? {
        self.read(number) { decoder, tag, value in
            guard tag & 7 == WireEnum<Enum>.wireType else { return decoder.skip(tag) }
            if let known = WireEnum<Enum>.decodeKnown(from: &decoder), !decoder.hasFailed { value = known }
        }
    }

    /// Returns the values of a repeated extension, which may come packed, too.
    public func values<Coding: WireCoding>(_ number: UInt32, _ coding: Coding.Type) -> [Coding.Value] {
        self.readAll(number) { decoder, tag, values in
            if tag & 7 == Coding.wireType {
                let read = Coding.decode(from: &decoder)
                if !decoder.hasFailed { values.append(read) }
            } else if tag & 7 == 2, let outer = decoder.enter(isLevel: false) {
                while decoder.cursor < decoder.end {
                    let read = Coding.decode(from: &decoder)
                    if !decoder.hasFailed { values.append(read) }
                }
                decoder.leave(to: outer, isLevel: false)
            } else {
                decoder.skip(tag)
            }
        }
    }

    /// Returns the values of a repeated extension of an enumeration, which may come packed, too.
    public func enumerations<Enum: ProtobufEnum>(_ number: UInt32, _ type: Enum.Type) -> [Enum] {
        self.readAll(number) { decoder, tag, values in
            if tag & 7 == WireEnum<Enum>.wireType {
                if let known = WireEnum<Enum>.decodeKnown(from: &decoder), !decoder.hasFailed { values.append(known) }
            } else if tag & 7 == 2, let outer = decoder.enter(isLevel: false) {
                while decoder.cursor < decoder.end {
                    if let known = WireEnum<Enum>.decodeKnown(from: &decoder), !decoder.hasFailed {
                        values.append(known)
                    }
                }
                decoder.leave(to: outer, isLevel: false)
            } else {
                decoder.skip(tag)
            }
        }
    }

    /// Returns the message of an extension: all that came, merged.
    ///
    /// - Parameter isGroup: Whether it is encoded between two tags.
    public func message<Message: ProtobufMessage>(
        _ number: UInt32,
        _ type: Message.Type,
        isGroup: Bool = false
    ) -> Message? {
        self.read(number) { decoder, tag, message in
            guard tag & 7 == (isGroup ? 3 : 2) else { return decoder.skip(tag) }
            var read = message
            isGroup ? decoder.group(&read, tag) : decoder.message(&read)
            if !decoder.hasFailed { message = read }
        }
    }

    /// Returns the messages of a repeated extension.
    public func messages<Message: ProtobufMessage>(
        _ number: UInt32,
        _ type: Message.Type,
        isGroup: Bool = false
    ) -> [Message] {
        self.readAll(number) { decoder, tag, messages in
            guard tag & 7 == (isGroup ? 3 : 2) else { return decoder.skip(tag) }
            var read: Message?
            isGroup ? decoder.group(&read, tag) : decoder.message(&read)
            if let read, !decoder.hasFailed { messages.append(read) }
        }
    }

    private func readAll<Value>(
        _ number: UInt32,
        _ body: (inout MessageDecoder, UInt32, inout [Value]) -> Void
    ) -> [Value] {
        var values: [Value] = []
        self.forEach(number) { bytes in
            var decoder = MessageDecoder(bytes, .standard)
            guard let tag = decoder.nextTag() else { return }
            body(&decoder, tag, &values)
        }
        return values
    }

    private func read<Value>(
        _ number: UInt32,
        _ body: (inout MessageDecoder, UInt32, inout Value?) -> Void
    ) -> Value? {
        var value: Value?
        self.forEach(number) { bytes in
            var decoder = MessageDecoder(bytes, .standard)
            guard let tag = decoder.nextTag() else { return }
            body(&decoder, tag, &value)
        }
        return value
    }

    // MARK: Changes

    /// Replaces the value of an extension.
    public mutating func set<Coding: WireCoding>(_ number: UInt32, _ value: Coding.Value, _ coding: Coding.Type) {
        self.replace(number) { encoder in encoder.optional(number << 3 | Coding.wireType, value, coding) }
    }

    /// Replaces the values of a repeated extension.
    public mutating func set<Coding: WireCoding>(_ number: UInt32, _ values: [Coding.Value], each coding: Coding.Type) {
        self.replace(number) { encoder in encoder.values(number << 3 | Coding.wireType, values, coding) }
    }

    /// Replaces the values of a repeated extension, which are encoded with one length.
    public mutating func set<Coding: PackedCoding>(
        _ number: UInt32,
        _ values: [Coding.Value],
        packed coding: Coding.Type
    ) {
        self.replace(number) { encoder in encoder.packed(number << 3 | 2, values, coding) }
    }

    /// Replaces the message of an extension.
    public mutating func set<Message: ProtobufMessage>(_ number: UInt32, _ message: Message, isGroup: Bool = false) {
        self.set(number, [message], isGroup: isGroup)
    }

    /// Replaces the messages of a repeated extension.
    public mutating func set<Message: ProtobufMessage>(_ number: UInt32, _ messages: [Message], isGroup: Bool = false) {
        self.replace(number) { encoder in
            isGroup ? encoder.groups(number << 3 | 3, messages) : encoder.messages(number << 3 | 2, messages)
        }
    }

    /// Removes the values of an extension.
    public mutating func remove(_ number: UInt32) {
        guard self.contains(number) else { return }
        var rest: [UInt8] = []
        rest.reserveCapacity(self.bytes.count)
        self.forEach { found, bytes in
            if found != number { rest.append(contentsOf: bytes) }
        }
        self.bytes = rest
    }

    private func contains(_ number: UInt32) -> Bool {
        var isThere = false
        self.forEach(number) { _ in isThere = true }
        return isThere
    }

    private mutating func replace(_ number: UInt32, _ encode: (inout MessageEncoder) -> Void) {
        self.remove(number)
        // Without memory, the encoder counts.
        var counter = MessageEncoder(UnsafeMutableRawBufferPointer(start: nil, count: 0), isCanonical: true)
        encode(&counter)
        let start = self.bytes.count
        self.bytes.append(contentsOf: repeatElement(0, count: counter.count))
        self.bytes.withUnsafeMutableBytes { bytes in
            var encoder = MessageEncoder(UnsafeMutableRawBufferPointer(rebasing: bytes[start...]), isCanonical: true)
            encode(&encoder)
        }
    }

    // MARK: Fields

    /// Calls `body` with each field of this number, with its tag.
    private func forEach(_ number: UInt32, _ body: (UnsafeRawBufferPointer) -> Void) {
        if self.bytes.isEmpty { return }
        self.forEach { found, bytes in
            if found == number { body(bytes) }
        }
    }

    /// Calls `body` with the number of each field, and with the whole field.
    private func forEach(_ body: (UInt32, UnsafeRawBufferPointer) -> Void) {
        self.bytes.withUnsafeBytes { bytes in
            var decoder = MessageDecoder(bytes, .standard)
            while let tag = decoder.nextTag() {
                let start = decoder.field
                decoder.skip(tag)
                if decoder.hasFailed { return }
                body(tag >> 3, UnsafeRawBufferPointer(start: start, count: decoder.cursor - start))
            }
        }
    }
}
