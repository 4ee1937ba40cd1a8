// SPDX-License-Identifier: Apache-2.0
/// Items of messages with `message_set_wire_format`: groups with the number of an extension and its message.
@_documentation(visibility: internal)
extension MessageDecoder {
    /// Reads an item, and keeps its message as the field that an extension of other messages would be, so that the
    /// properties of extensions find it.
    public mutating func messageSetItem(_ storage: inout UnknownStorage) {
        let item = self.field
        guard self.levels > 0 else { return self.failForDepth() }
        var number: UInt64?
        var message: UnsafeBufferPointer<UInt8>?
        while let tag = self.nextTag() {
            switch tag {
            case MessageSetItem.number:
                let value = self.varint()
                number = number ?? value
            case MessageSetItem.message:
                let bytes = self.delimited()
                // Once there is both, there is nothing more to an item.
                if number == nil || message == nil { message = bytes }
            case MessageSetItem.end:
                guard let number, let message else { return }
                return self.keep(item, number, message, &storage)
            default: self.skip(tag)
            }
        }
        self.fail(.truncated, at: self.cursor)
    }

    private mutating func keep(
        _ item: UnsafePointer<UInt8>,
        _ number: UInt64,
        _ message: UnsafeBufferPointer<UInt8>,
        _ storage: inout UnknownStorage
    ) {
        // Other implementations have room for larger numbers in sets. Here, such an item stays as it is.
        guard (1...0x1FFF_FFFF).contains(number) else { return self.keep(item, &storage) }
        // A tag and a length have up to five bytes each.
        self.charge(message.count + 10)
        if self.hasFailed { return }
        storage.append(number: UInt32(number), delimited: UnsafeRawBufferPointer(message))
    }
}

/// The tags of an item.
enum MessageSetItem {
    static let start: UInt32 = 1 << 3 | 3
    static let end: UInt32 = 1 << 3 | 4
    /// That of the number of the extension.
    static let number: UInt32 = 2 << 3
    /// That of the message, which a length delimits.
    static let message: UInt32 = 3 << 3 | 2
}
