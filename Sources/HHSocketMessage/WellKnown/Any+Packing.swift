// SPDX-License-Identifier: Apache-2.0
import HHSocketFoundation

extension Google_Protobuf_Any {
    /// Packs a message.
    ///
    /// - Parameters:
    ///   - message: The message, which is encoded at once.
    ///   - typePrefix: The part of the type URL before the message's full name; `type.googleapis.com` by default.
    /// - Throws: ``MessageError`` if the message cannot be encoded.
    public init(
        message: some ProtobufMessage,
        typePrefix: String = "type.googleapis.com"
    ) throws(MessageError) {
        self.init()
        let name = type(of: message).protoMessageName
        self.typeURL =
            typePrefix.isEmpty || typePrefix.hasSuffix("/") ? "\(typePrefix)\(name)" : "\(typePrefix)/\(name)"
        self.value = Data(try message.serializedBytes())
    }

    /// Returns whether the packed message is of this type: the part of the type URL behind the last slash is its name.
    public func isA<Message: ProtobufMessage>(_ type: Message.Type) -> Bool {
        guard let slash = self.typeURL.lastIndex(of: "/") else { return false }
        return self.typeURL[self.typeURL.index(after: slash)...] == Message.protoMessageName
    }
}

extension ProtobufMessage {
    /// Unpacks a message.
    ///
    /// - Parameters:
    ///   - any: The packed message.
    ///   - limits: The bounds of nesting and of memory.
    /// - Throws: ``MessageError`` if it is of another type, or its bytes are not such a message.
    public init(
        unpackingAny any: Google_Protobuf_Any,
        limits: MessageLimits = .standard
    ) throws(MessageError) {
        guard any.isA(Self.self) else {
            throw MessageError(.anotherType(url: any.typeURL), in: Self.protoMessageName)
        }
        try self.init(serializedBytes: any.value, limits: limits)
    }
}
