// SPDX-License-Identifier: Apache-2.0
/// Messages in protobuf's JSON.
///
/// ```swift
/// let text = try note.jsonString()
/// let same = try Chat_Note(jsonString: text)
/// ```
/// The form is that of [protobuf's specification](https://protobuf.dev/programming-guides/json/), with the forms of
/// `Timestamp`, `Duration`, `Any`, `Struct`, `FieldMask` and the wrappers. Unknown fields are not part of it.
public enum MessageJSON {
    /// The options of writing a message in JSON.
    public struct EncodingOptions: Sendable {
        /// Whether enumerations are written as numbers instead of by name; false by default.
        public var alwaysPrintEnumsAsInts = false
        /// Whether 64-bit integers are written as numbers instead of strings; false by default, because many parsers
        /// read numbers as doubles, which lose digits of large ones.
        public var alwaysPrintInt64sAsNumbers = false
        /// Whether fields have the names of the `.proto` instead of those in lower camel case; false by default.
        public var preserveProtoFieldNames = false
        /// Whether fields without presence are written if they have no value; false by default.
        public var alwaysPrintFieldsWithNoPresence = false
        /// Whether each member is on a separate line; false by default.
        public var isIndented = false
        /// The types that an `Any` may contain; by default those of `google.protobuf` that have a special form.
        public var types = MessageTypes()
        /// Whether a message of another type is its bytes in Base64, instead of an error.
        package var acceptsUndeclaredTypes = false

        public init() {}
    }

    /// The options of reading a message in JSON.
    public struct DecodingOptions: Sendable {
        /// Whether members that the message does not have, and names that an enumeration does not have, are ignored;
        /// false by default, so that they are errors.
        public var ignoreUnknownFields = false
        /// The types that an `Any` may contain; by default those of `google.protobuf` that have a special form.
        public var types = MessageTypes()
        /// Whether a message of another type is its bytes in Base64, instead of an error.
        package var acceptsUndeclaredTypes = false

        public init() {}
    }
}

/// The types of messages that may be found in an `Any`, by their names, and the extensions that messages may have.
public struct MessageTypes: Sendable {
    private let find: @Sendable (String) -> MessageDescriptor?
    /// The extensions that are read and written.
    let extensions: ExtensionTable

    /// - Parameters:
    ///   - types: The types beside those of `google.protobuf` that the runtime provides.
    ///   - extensions: The extensions; JSON without them leaves their values out, and refuses their names.
    public init(_ types: [any ProtobufMessage.Type] = [], extensions: [MessageExtension] = []) {
        let all = types.map { $0.messageDescriptor } + Self.wellKnown
        let byName = Dictionary(all.map { ($0.name, $0) }, uniquingKeysWith: { first, _ in first })
        self.find = { byName[$0] }
        self.extensions = ExtensionTable(extensions)
    }

    /// - Parameter find: Returns the descriptor with a full name.
    package init(
        extensions: [MessageExtension] = [],
        find: @escaping @Sendable (String) -> MessageDescriptor?
    ) {
        self.find = find
        self.extensions = ExtensionTable(extensions)
    }

    /// Returns the message of an `Any`'s type URL, such as `type.googleapis.com/chat.Note`.
    func type(ofURL url: String) -> MessageDescriptor? {
        let name = url.split(separator: "/", omittingEmptySubsequences: false).last.map(String.init) ?? ""
        return self.find(name).flatMap { $0.isMapEntry ? nil : $0 }
    }

    private static let wellKnown: [MessageDescriptor] = [
        Google_Protobuf_Any.messageDescriptor, Google_Protobuf_FieldMask.messageDescriptor,
        Google_Protobuf_ListValue.messageDescriptor, Google_Protobuf_Struct.messageDescriptor,
        Google_Protobuf_Value.messageDescriptor, Google_Protobuf_Timestamp.messageDescriptor,
        Google_Protobuf_Duration.messageDescriptor,
        Google_Protobuf_Empty.messageDescriptor, Google_Protobuf_DoubleValue.messageDescriptor,
        Google_Protobuf_FloatValue.messageDescriptor, Google_Protobuf_Int64Value.messageDescriptor,
        Google_Protobuf_UInt64Value.messageDescriptor, Google_Protobuf_Int32Value.messageDescriptor,
        Google_Protobuf_UInt32Value.messageDescriptor, Google_Protobuf_BoolValue.messageDescriptor,
        Google_Protobuf_StringValue.messageDescriptor, Google_Protobuf_BytesValue.messageDescriptor,
    ]
}
