// SPDX-License-Identifier: Apache-2.0
/// The items of a message set: a message with the option `message_set_wire_format`, whose extensions are messages.
///
/// An item is a group with the number of the extension and its message, in either order. A sender that
/// does not know the option may send extensions like those of other messages. Used by generated code.
@_documentation(visibility: internal)
extension UnknownStorage {
    /// Returns the message of an extension, merged from all received parts.
    public func message<Message: ProtobufMessage>(item number: UInt32, _ type: Message.Type) -> Message? {
        var message: Message?
        let isSound = self.readItems { decoder, found, value in
            guard found == number else { return }
            decoder.read(value, into: &message)
        }
        return isSound ? message : nil
    }

    /// Replaces the message of an extension. A message that is nested too deeply to be encoded is left out.
    public mutating func set<Message: ProtobufMessage>(item number: UInt32, _ message: Message) {
        self.remove(item: number)
        self.append { encoder in encoder.item(number, message) }
    }

    /// Appends an item whose message is encoded already.
    mutating func append(item number: UInt32, encodedMessage bytes: [UInt8]) {
        self.append { encoder in
            encoder.prepend(tag: MessageSetTags.end)
            bytes.withUnsafeBytes { encoder.prepend(bytes: $0) }
            encoder.prepend(varint: UInt64(bytes.count))
            encoder.prepend(tag: MessageSetTags.message)
            encoder.prepend(beginningOfItem: number)
        }
    }

    /// Removes the message of an extension.
    public mutating func remove(item number: UInt32) {
        self.remove { field, _ in
            if field.number == number, field.type == .lengthDelimited { return true }
            guard field.tag == MessageSetTags.start else { return false }
            var decoder = MessageDecoder(field.value, .standard)
            decoder.levels = .max
            return decoder.item()?.number == number
        }
    }

    /// Calls `body` with each item: a decoder, the number of the extension, and the encoded message.
    ///
    /// One decoder reads them all, so that their memory is counted together.
    ///
    /// - Returns: Whether the items that `body` read are valid.
    func readItems(_ body: (inout MessageDecoder, UInt32, UnsafeBufferPointer<UInt8>) -> Void) -> Bool {
        if self.bytes.isEmpty { return true }
        return self.bytes.withUnsafeBytes { bytes in
            var decoder = MessageDecoder(bytes, .standard)
            let levels = decoder.levels
            while let tag = decoder.nextTag() {
                // Groups were counted when the message was decoded, maybe within wider limits.
                decoder.levels = .max
                var item: (number: UInt32, value: UnsafeBufferPointer<UInt8>)?
                switch tag {
                case MessageSetTags.start: item = decoder.item()
                case _ where tag & 7 == 2: item = (tag >> 3, decoder.delimited())
                default: decoder.skip(tag)
                }
                decoder.levels = levels
                if let item, !decoder.hasFailed { body(&decoder, item.number, item.value) }
            }
            return !decoder.hasFailed
        }
    }
}

/// The tags of an item, and of the fields in it.
private enum MessageSetTags {
    static let start: UInt32 = 1 << 3 | 3
    static let end: UInt32 = 1 << 3 | 4
    static let number: UInt32 = 2 << 3
    static let message: UInt32 = 3 << 3 | 2
}

extension MessageDecoder {
    /// Reads an item of a message set after its first tag. If it has several numbers or messages, the first ones count.
    ///
    /// - Returns: Nil if a part is missing, or after an error.
    fileprivate mutating func item() -> (number: UInt32, value: UnsafeBufferPointer<UInt8>)? {
        var (number, value) = (UInt32?.none, UnsafeBufferPointer<UInt8>?.none)
        while let tag = self.nextTag() {
            switch tag {
            case MessageSetTags.end:
                guard let number, let value else { return nil }
                return (number, value)
            case MessageSetTags.number:
                let found = UInt32(truncatingIfNeeded: self.varint())
                number = number ?? found
            case MessageSetTags.message:
                let found = self.delimited()
                value = value ?? found
            default: self.skip(tag)
            }
        }
        self.fail(.truncated, at: self.cursor)
        return nil
    }

    /// Reads a message from bytes that were read before, and returns to the previous position.
    fileprivate mutating func read<Message: ProtobufMessage>(
        _ bytes: UnsafeBufferPointer<UInt8>,
        into message: inout Message?
    ) {
        if message == nil { message = Message() }
        guard let start = bytes.baseAddress else { return }
        let (next, outer) = (self.cursor, self.end)
        self.cursor = start
        self.end = start + bytes.count
        self.levels -= 1
        message?.decode(from: &self)
        if self.hasFailed { self.attribute(to: Message.messageDescriptor) }
        self.levels += 1
        self.end = outer
        self.cursor = self.hasFailed ? outer : next
    }
}

extension MessageEncoder {
    fileprivate mutating func item<Message: ProtobufMessage>(_ number: UInt32, _ message: Message) {
        self.prepend(tag: MessageSetTags.end)
        self.prepend(MessageSetTags.message, message)
        self.prepend(beginningOfItem: number)
    }

    fileprivate mutating func prepend(beginningOfItem number: UInt32) {
        self.prepend(varint: UInt64(number))
        self.prepend(tag: MessageSetTags.number)
        self.prepend(tag: MessageSetTags.start)
    }
}
