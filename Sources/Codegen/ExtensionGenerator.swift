// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// Writes the properties that an extension gives to the extended message. They read and write its unknown fields.
struct ExtensionGenerator {
    private let field: FieldDescriptor
    private let context: Context
    private let type: FieldType

    init(_ field: FieldDescriptor, _ context: Context) {
        self.field = field
        self.context = context
        self.type = FieldType(field, context.names)
    }

    /// The declaration of the extension itself.
    func printDeclaration(_ printer: inout CodePrinter, isNested: Bool) {
        let name = self.context.names.namer.relativeName(extensionField: self.field)
        var words = ["\(self.field.number)", self.field.fullName, self.type.kind]
        words.append(!self.field.isRepeated ? "optional" : self.field.isPacked ? "packed" : "repeated")
        words.append("json=[\(self.jsonName)]")
        let types = self.type.isMessage || self.type.isEnum ? ", types: [\(self.type.name).self]" : ""
        let item = self.field.isMessageSetItem ? ", isMessageSetItem: true" : ""
        printer.print(
            "\(self.context.access)\(isNested ? "static " : "")let \(name) = \(Names.runtime).MessageExtension("
                + "of: \(self.extended).self, \"\(words.joined(separator: " "))\"\(types)\(item))"
        )
    }

    /// The properties of the extended message.
    func printProperties(_ printer: inout CodePrinter) {
        let names = self.context.names.namer.messagePropertyNames(extensionField: self.field)
        let access = self.context.access
        let read = "self.unknownFields.\(self.reading)"
        printer.printBlock("", "extension \(self.extended) {") { printer in
            let type = self.field.isRepeated ? "[\(self.type.name)]" : self.type.name
            printer.print("\(DocComment.lines(of: self.field))\(access)var \(names.value): \(type) {")
            printer.printIndented(
                "get { \(read)\(self.field.isRepeated ? "" : " ?? \(self.defaultValue)") }",
                "set { self.unknownFields.set(\(self.number), newValue\(self.writing)) }"
            )
            printer.print("}")
            if !self.field.isRepeated {
                printer.print(
                    "/// Whether `\(Names.used(names.value))` has a value.",
                    "\(access)var \(names.has): Bool { \(read) != nil }"
                )
            }
            printer.print(
                "/// Leaves `\(Names.used(names.value))` without a value.",
                "\(access)mutating func \(names.clear)() { self.unknownFields.remove(\(self.number)\(self.removal)) }"
            )
        }
    }

    private var extended: String { self.context.names.namer.fullName(message: self.field.containingType) }

    /// The default value, which is qualified, as there is no contextual type.
    private var defaultValue: String {
        let value = self.type.defaultValue
        return value.hasPrefix(".") ? "\(self.type.name)\(value)" : value
    }

    /// The first argument of the runtime's functions.
    private var number: String { "\(self.field.isMessageSetItem ? "item: " : "")\(self.field.number)" }

    /// The name in JSON. An extension of a message set that is declared in its own message has the message's name.
    private var jsonName: String {
        guard self.field.isMessageSetItem, let scope = self.field.extensionScope, scope === self.field.messageType
        else { return self.field.fullName }
        return scope.fullName
    }

    private var reading: String {
        let plural = self.field.isRepeated ? "s" : ""
        guard self.type.isMessage else { return "value\(plural)(\(self.number), \(self.type.coding))" }
        return "message\(plural)(\(self.number), \(self.type.name).self\(self.group))"
    }

    private var writing: String {
        if self.type.isMessage { return self.group }
        guard self.field.isRepeated else { return ", as: \(self.type.coding)" }
        return self.field.isPacked ? ", packed: \(self.type.coding)" : ", each: \(self.type.coding)"
    }

    private var removal: String {
        if self.type.isMessage { return self.group }
        return self.field.isRepeated ? ", each: \(self.type.coding)" : ", \(self.type.coding)"
    }

    private var group: String { self.type.isGroup ? ", isGroup: true" : "" }
}
