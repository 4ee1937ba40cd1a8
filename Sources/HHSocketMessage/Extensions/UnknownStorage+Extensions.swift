// SPDX-License-Identifier: Apache-2.0
/// Values of extensions, which are among the fields that a message does not know. Used by generated code.
///
/// A field of another wire type than declared, and a number that a closed enumeration does not declare, are no values:
/// they are left out, and stay among the unknown fields when the values change. A value with any malformed part does
/// not count either: text that is not UTF-8, a message that cannot be decoded or is nested too deeply, truncated packed
/// numbers, and values that take more memory than the standard limits allow.
@_documentation(visibility: internal)
extension UnknownStorage {
    // MARK: Values

    /// Returns the value of an extension: the last one; of a closed enumeration, the last one that is declared.
    public func value<Coding: WireCoding>(_ number: UInt32, _ coding: Coding.Type) -> Coding.Value? {
        var value: Coding.Value?
        let isSound = self.read(number) { decoder, tag in
            guard tag & 7 == Coding.wireType else { return false }
            if let known = Coding.decodeKnown(from: &decoder) { value = known }
            return true
        }
        return isSound ? value : nil
    }

    /// Returns the values of a repeated extension, which may be packed.
    public func values<Coding: WireCoding>(_ number: UInt32, _ coding: Coding.Type) -> [Coding.Value] {
        var values: [Coding.Value] = []
        let isSound = self.readAll(number, wireType: Coding.wireType) { decoder in
            guard let known = Coding.decodeKnown(from: &decoder) else { return }
            decoder.charge(MemoryLayout<Coding.Value>.stride)
            values.append(known)
        }
        return isSound ? values : []
    }

    /// Returns the message of an extension, merged from all received parts.
    ///
    /// - Parameter isGroup: Whether it is encoded between two tags.
    public func message<Message: ProtobufMessage>(
        _ number: UInt32,
        _ type: Message.Type,
        isGroup: Bool = false
    ) -> Message? {
        var message: Message?
        let isSound = self.read(number) { decoder, tag in
            guard tag & 7 == (isGroup ? 3 : 2) else { return false }
            isGroup ? decoder.group(&message, tag) : decoder.message(&message)
            return true
        }
        return isSound ? message : nil
    }

    /// Returns the messages of a repeated extension.
    public func messages<Message: ProtobufMessage>(
        _ number: UInt32,
        _ type: Message.Type,
        isGroup: Bool = false
    ) -> [Message] {
        var messages: [Message] = []
        let isSound = self.read(number) { decoder, tag in
            guard tag & 7 == (isGroup ? 3 : 2) else { return false }
            isGroup ? decoder.groups(&messages, tag) : decoder.messages(&messages)
            return true
        }
        return isSound ? messages : []
    }

    /// Calls `body` for each value of a repeated extension, packed or not.
    ///
    /// - Returns: Whether the values that the decoder has read are valid.
    private func readAll(_ number: UInt32, wireType: UInt32, _ body: (inout MessageDecoder) -> Void) -> Bool {
        self.read(number) { decoder, tag in
            if tag & 7 == wireType {
                body(&decoder)
                return true
            }
            guard tag & 7 == 2 else { return false }
            guard let outer = decoder.enter(isLevel: false) else { return true }
            while decoder.cursor < decoder.end { body(&decoder) }
            decoder.exit(to: outer, isLevel: false)
            return true
        }
    }

    /// Calls `body` for each field with a number, after its tag. It reads the field's value, or returns false.
    ///
    /// One decoder reads them all, so that their memory is counted together.
    ///
    /// - Returns: Whether the fields that `body` read are valid.
    private func read(_ number: UInt32, _ body: (inout MessageDecoder, UInt32) -> Bool) -> Bool {
        if self.bytes.isEmpty { return true }
        return self.bytes.withUnsafeBytes { bytes in
            var decoder = MessageDecoder(bytes, .standard)
            let levels = decoder.levels
            while let tag = decoder.nextTag() {
                if tag >> 3 == number, body(&decoder, tag) { continue }
                // Groups that are skipped were counted when the message was decoded, maybe within wider limits.
                decoder.levels = .max
                decoder.skip(tag)
                decoder.levels = levels
            }
            return !decoder.hasFailed
        }
    }

    // MARK: Changes

    /// Replaces the value of an extension.
    public mutating func set<Coding: WireCoding>(_ number: UInt32, _ value: Coding.Value, as coding: Coding.Type) {
        self.remove(number, coding)
        self.append { encoder in encoder.optional(number << 3 | Coding.wireType, value, as: coding) }
    }

    /// Replaces the values of a repeated extension.
    public mutating func set<Coding: WireCoding>(_ number: UInt32, _ values: [Coding.Value], each coding: Coding.Type) {
        self.remove(number, each: coding)
        self.append { encoder in encoder.values(number << 3 | Coding.wireType, values, as: coding) }
    }

    /// Replaces the values of a repeated extension, which are encoded with one length.
    public mutating func set<Coding: PackedCoding>(
        _ number: UInt32,
        _ values: [Coding.Value],
        packed coding: Coding.Type
    ) {
        self.remove(number, each: coding)
        self.append { encoder in encoder.packed(number << 3 | 2, values, as: coding) }
    }

    /// Replaces the message of an extension. A message that is nested too deeply to be encoded is left out.
    public mutating func set<Message: ProtobufMessage>(_ number: UInt32, _ message: Message, isGroup: Bool = false) {
        self.set(number, [message], isGroup: isGroup)
    }

    /// Replaces the messages of a repeated extension. If one is nested too deeply to be encoded, all are left out.
    public mutating func set<Message: ProtobufMessage>(_ number: UInt32, _ messages: [Message], isGroup: Bool = false) {
        self.remove(number, isGroup: isGroup)
        self.append { encoder in
            isGroup ? encoder.groups(number << 3 | 3, messages) : encoder.messages(number << 3 | 2, messages)
        }
    }

    /// Removes the value of an extension.
    public mutating func remove<Coding: WireCoding>(_ number: UInt32, _ coding: Coding.Type) {
        self.remove { field, _ in
            guard field.tag == number << 3 | Coding.wireType else { return false }
            var decoder = MessageDecoder(field.value, .standard)
            // A number that a closed enumeration does not declare is an unknown field.
            return Coding.decodeKnown(from: &decoder) != nil || decoder.hasFailed
        }
    }

    /// Removes the values of a repeated extension.
    public mutating func remove<Coding: WireCoding>(_ number: UInt32, each coding: Coding.Type) {
        self.remove(number, coding)
        guard Coding.self is any PackedCoding.Type else { return }
        self.remove { field, remains in
            guard field.tag == number << 3 | 2 else { return false }
            var decoder = MessageDecoder(field.value, .standard)
            _ = decoder.varint()
            while decoder.cursor < decoder.end {
                let start = decoder.cursor
                if Coding.decodeKnown(from: &decoder) == nil, !decoder.hasFailed {
                    // With a separate tag, like in the decoder of a message.
                    remains.append(
                        number: number,
                        varint: UnsafeBufferPointer(start: start, count: decoder.cursor - start)
                    )
                }
            }
            return true
        }
    }

    /// Removes the messages of an extension.
    ///
    /// - Parameter isGroup: Whether they are encoded between two tags.
    public mutating func remove(_ number: UInt32, isGroup: Bool = false) {
        self.remove { field, _ in field.tag == number << 3 | (isGroup ? 3 : 2) }
    }

    /// Removes fields.
    ///
    /// - Parameter isRemoved: Returns whether a field is removed. Its second argument takes what remains of the field.
    mutating func remove(_ isRemoved: (Field, inout UnknownStorage) -> Bool) {
        var rest: [UInt8] = []
        // The end of the last field that is removed. Most often there is none, and nothing is copied.
        var end = 0
        self.bytes.withUnsafeBytes { bytes in
            var next = 0
            Self.forEach(in: bytes) { field in
                let start = next
                next += field.bytes.count
                var remains = Self()
                guard isRemoved(field, &remains) else { return }
                rest += bytes[end..<start]
                rest += remains.bytes
                end = next
            }
        }
        if end > 0 { self.bytes = rest + self.bytes[end...] }
    }

    /// Appends fields, unless they are too deep or too long: an incomplete encoding must not become another value.
    mutating func append(_ encode: (inout MessageEncoder) -> Void) {
        // Without memory, the encoder counts.
        var counter = MessageEncoder(UnsafeMutableRawBufferPointer(start: nil, count: 0), isCanonical: true)
        encode(&counter)
        guard counter.failure == nil, counter.count <= MessageLimits.length else { return }
        let start = self.bytes.count
        self.bytes.append(contentsOf: repeatElement(0, count: counter.count))
        self.bytes.withUnsafeMutableBytes { bytes in
            var encoder = MessageEncoder(UnsafeMutableRawBufferPointer(rebasing: bytes[start...]), isCanonical: true)
            encode(&encoder)
        }
    }
}
