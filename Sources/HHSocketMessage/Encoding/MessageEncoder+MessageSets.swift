// SPDX-License-Identifier: Apache-2.0
/// Items of messages with `message_set_wire_format`.
@_documentation(visibility: internal)
extension MessageEncoder {
    /// Writes the extensions of a message, and the others that it does not know, each as an item.
    public mutating func messageSet(_ storage: UnknownStorage) {
        var fields: [(tag: UInt32, value: UnsafeRawBufferPointer)] = []
        storage.bytes.withUnsafeBytes { bytes in
            UnknownStorage.forEach(bytes) { number, type, value in
                fields.append((number << 3 | UInt32(type.rawValue), value))
            }
            for (tag, value) in fields.reversed() {
                guard tag & 7 == UInt32(WireType.lengthDelimited.rawValue) else {
                    self.prepend(bytes: value)
                    self.prepend(tag: tag)
                    continue
                }
                self.prepend(tag: MessageSetItem.end)
                // With its length.
                self.prepend(bytes: value)
                self.prepend(tag: MessageSetItem.message)
                self.prepend(varint: UInt64(tag >> 3))
                self.prepend(tag: MessageSetItem.number)
                self.prepend(tag: MessageSetItem.start)
            }
        }
    }
}
