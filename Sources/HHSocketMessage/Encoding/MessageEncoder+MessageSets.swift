// SPDX-License-Identifier: Apache-2.0
/// Items of messages with `message_set_wire_format`.
@_documentation(visibility: internal)
extension MessageEncoder {
    /// Writes the extensions of a message, and the others that it does not know, each as an item.
    public mutating func messageSet(_ storage: UnknownStorage) {
        storage.bytes.withUnsafeBytes { bytes in
            var fields: [UnknownStorage.Field] = []
            UnknownStorage.forEach(in: bytes) { fields.append($0) }
            for field in fields.reversed() {
                guard field.type == .lengthDelimited else {
                    self.prepend(bytes: field.bytes)
                    continue
                }
                self.prepend(tag: MessageSetItem.end)
                // With its length.
                self.prepend(bytes: field.value)
                self.prepend(tag: MessageSetItem.message)
                self.prepend(varint: UInt64(field.number))
                self.prepend(tag: MessageSetItem.number)
                self.prepend(tag: MessageSetItem.start)
            }
        }
    }
}
