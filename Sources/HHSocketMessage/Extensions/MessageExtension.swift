// SPDX-License-Identifier: Apache-2.0
/// An extension of a message: a field that another `.proto` declares for it.
///
/// Generated code declares one for each extension, with a property of the extended message:
/// ```swift
/// note.Chat_color = 7
/// ```
/// The values are among the message's unknown fields, as received, and the property decodes them at each access. So
/// extensions need not be registered, and messages without them have no cost.
public struct MessageExtension: Sendable {
    /// The full name of the extended message.
    package let extendedName: String
    /// The declaration: its name is the extension's full name.
    public let field: FieldDescriptor
    /// Whether the extended message is a message set, which has a group with a number and a message for each extension.
    package let isMessageSetItem: Bool

    /// - Parameters:
    ///   - extended: The extended message.
    ///   - declaration: The field, in the form of ``MessageDescriptor/init(_:_:types:)``. Used by generated code.
    ///   - types: The type of the field, if it is a message or an enumeration.
    ///   - isMessageSetItem: Whether the extended message is a message set; false by default.
    public init(
        of extended: any ProtobufMessage.Type,
        _ declaration: StaticString,
        types: [any DescribedType.Type] = [],
        isMessageSetItem: Bool = false
    ) {
        self.extendedName = extended.messageDescriptor.name
        var declaration = DescriptorDeclaration(declaration, types, of: self.extendedName)
        // One line has been given.
        self.field = declaration.fields()[0]
        self.isMessageSetItem = isMessageSetItem
    }

    /// An extension whose types are known only at run time.
    ///
    /// - Parameter field: The declaration; its name is the extension's full name, which has brackets in JSON.
    package init(ofMessage extendedName: String, _ field: FieldDescriptor, isMessageSetItem: Bool) {
        self.extendedName = extendedName
        self.field = field
        self.isMessageSetItem = isMessageSetItem
    }
}
