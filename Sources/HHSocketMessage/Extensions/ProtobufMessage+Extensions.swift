// SPDX-License-Identifier: Apache-2.0
extension ProtobufMessage {
    /// Decodes a message, and checks the values of extensions: its own, and those of the messages within it.
    ///
    /// A message can be decoded without naming its extensions. An extension that is not named and cannot be decoded has
    /// no value, and is encoded again as received.
    ///
    /// - Parameters:
    ///   - bytes: The whole message; less than 2 GiB.
    ///   - extensions: The extensions that are checked. It takes several times as long as decoding the message.
    ///   - limits: The bounds of nesting and of memory.
    /// - Throws: ``MessageError`` if the bytes are not such a message, it exceeds the limits, or the value of an
    ///   extension is malformed, lacks a required field, or lies too deep.
    public init(
        serializedBytes bytes: some Sequence<UInt8>,
        extensions: [MessageExtension],
        limits: MessageLimits = .standard
    ) throws(MessageError) {
        let bytes = Array(bytes)
        try self.init(serializedBytes: bytes, limits: limits)
        let message = try bytes.withUnsafeBufferPointer { bytes throws(MessageError) in
            try DynamicMessage(Self.messageDescriptor, serializedBytes: UnsafeRawBufferPointer(bytes), limits: limits)
        }
        try ExtensionTable(extensions).check(message, depth: limits.depth)
    }
}
