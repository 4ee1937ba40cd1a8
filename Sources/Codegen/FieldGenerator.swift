// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// Writes the members of a message for one of its fields.
struct FieldGenerator {
    /// The representation of a field in a message.
    private enum Shape {
        /// A value that is always present.
        case implicit
        /// A value that may be missing, kept in a separate stored property.
        case optional
        case array
        case map(key: FieldType, value: FieldType)
        /// A case of an enum, under this name.
        case oneof(OneofDescriptor)
    }

    let field: FieldDescriptor
    private let context: Context
    private let shape: Shape
    private let type: FieldType
    private let names: SwiftProtobufNamer.MessageFieldNames
    /// Whether the message's fields are on the heap.
    private let isOnHeap: Bool

    init(_ field: FieldDescriptor, isOnHeap: Bool, _ context: Context) {
        self.field = field
        self.isOnHeap = isOnHeap
        self.context = context
        self.type = FieldType(field, context.names)
        if field.isMap, let entry = field.messageType.mapKeyAndValue {
            self.shape = .map(key: FieldType(entry.key, context.names), value: FieldType(entry.value, context.names))
        } else if field.isRepeated {
            self.shape = .array
        } else if let oneof = field.realContainingOneof {
            self.shape = .oneof(oneof)
        } else {
            self.shape = field.hasPresence ? .optional : .implicit
        }
        let isOptional = if case .optional = self.shape { true } else { false }
        self.names = context.names.property(field, hasPresence: isOptional)
    }

    /// The field's line in the message's descriptor.
    var declaration: String {
        var words = ["\(self.field.number)", self.field.name]
        switch self.shape {
        case .map(let key, let value): words.append("map<\(key.kind),\(value.kind)>")
        case .implicit: words.append(self.type.kind)
        case .optional: words += [self.type.kind, self.field.isRequired ? "required" : "optional"]
        case .array: words += [self.type.kind, self.field.isPacked ? "packed" : "repeated"]
        case .oneof(let oneof): words += [self.type.kind, "oneof=\(oneof.name)"]
        }
        if let jsonName = self.field.jsonName, jsonName != Self.usualJSONName(of: self.field.name) {
            words.append("json=\(Literals.string(jsonName).dropFirst().dropLast())")
        }
        return words.joined(separator: " ")
    }

    /// The Swift type to which the descriptor refers, if the field's values are messages or of an enumeration.
    var declaredType: String? {
        let type = if case .map(_, let value) = self.shape { value } else { self.type }
        return type.isMessage || type.isEnum ? type.name : nil
    }

    /// Returns the name in JSON by protoc's rule, which the runtime knows too.
    private static func usualJSONName(of name: String) -> String {
        var result = ""
        var isAfterUnderscore = false
        for character in name {
            if character != "_" { result += isAfterUnderscore ? character.uppercased() : String(character) }
            isAfterUnderscore = character == "_"
        }
        return result
    }

    // MARK: - Properties

    func printProperty(_ printer: inout CodePrinter) {
        let declaration = "\(DocComment.lines(of: self.field))\(self.context.access)var \(self.names.name): "
        switch self.shape {
        case .implicit, .array, .map: self.printValue(declaration, &printer)
        case .optional: self.printOptional(declaration, &printer)
        case .oneof(let oneof): self.printCase(of: oneof, declaration, &printer)
        }
    }

    private func printValue(_ declaration: String, _ printer: inout CodePrinter) {
        guard self.isOnHeap else {
            printer.print("\(declaration)\(self.storedType) = \(self.emptyValue)")
            return
        }
        printer.print("\(declaration)\(self.storedType) {")
        printer.printIndented(
            "get { \(HeapNames.fields).\(self.used) }",
            "_modify { yield &\(HeapNames.fields).\(self.used) }"
        )
        printer.print("}")
    }

    /// The property of the fields on the heap; nil if that of the oneof suffices.
    var heapProperty: String? {
        switch self.shape {
        case .implicit, .array, .map: "var \(self.names.name): \(self.storedType) = \(self.emptyValue)"
        case .optional: "var \(self.names.prefixed): \(self.type.name)?"
        case .oneof: nil
        }
    }

    private var storedType: String {
        switch self.shape {
        case .array: "[\(self.type.name)]"
        case .map(let key, let value): "[\(key.name): \(value.name)]"
        case .implicit, .optional, .oneof: self.type.name
        }
    }

    private var emptyValue: String {
        switch self.shape {
        case .array: "[]"
        case .map: "[:]"
        case .implicit, .optional, .oneof: self.type.defaultValue
        }
    }

    private func printOptional(_ declaration: String, _ printer: inout CodePrinter) {
        let access = self.context.access
        printer.print("\(declaration)\(self.type.name) {")
        printer.printIndented(
            "get { \(self.outerStorage) ?? \(self.type.defaultValue) }",
            "set { \(self.outerStorage) = newValue }"
        )
        if self.type.isMessage {
            // Without this, a change within the value would copy it.
            printer.printIndented("_modify { yield &\(self.outerStorage)[orDefault: \(self.type.defaultValue)] }")
        }
        printer.print(
            "}",
            "/// Whether `\(Names.used(self.names.name))` has a value.",
            "\(access)var \(self.names.has): Bool { \(self.outerStorage) != nil }",
            "/// Leaves `\(Names.used(self.names.name))` without a value.",
            "\(access)mutating func \(self.names.clear)() { \(self.outerStorage) = nil }"
        )
    }

    private func printCase(of oneof: OneofDescriptor, _ declaration: String, _ printer: inout CodePrinter) {
        let property = self.property(of: oneof)
        printer.print("\(declaration)\(self.type.name) {")
        printer.printIndented(
            "get { if case .\(self.used)(let value)? = \(property) { value } else { \(self.type.defaultValue) } }",
            "set { \(property) = \(self.made(of: oneof, "newValue")) }"
        )
        printer.print("}")
    }

    /// The case of the field's oneof.
    var enumCase: String { "case \(self.names.name)(\(self.type.name))" }

    /// The declaration of the stored property; nil if the property itself is stored, or on the heap.
    var storage: String? {
        guard case .optional = self.shape, !self.isOnHeap else { return nil }
        return "private var \(self.names.prefixed): \(self.type.name)?"
    }

    // MARK: - Decoding

    /// The branches that decode the field.
    func printDecoding(_ printer: inout CodePrinter) {
        let tag = self.tag
        switch self.shape {
        case .implicit: printer.print("case \(tag): \(self.decoding("value"))")
        case .optional: printer.print("case \(tag): \(self.decoding(self.messageFunction ?? "optional"))")
        case .oneof(let oneof): self.printDecodingCase(of: oneof, &printer)
        case .array where self.type.isMessage:
            printer.print("case \(tag): \(self.decoding(self.type.isGroup ? "groups" : "messages"))")
        case .array where self.type.isEnum:
            printer.print(
                "case \(tag): \(self.decoding("enumerations"))",
                "case \(self.packedTag): "
                    + "decoder.packedEnumerations(&\(self.stored), tag: tag, unknown: &self.unknownFields)"
            )
        case .array:
            printer.print("case \(tag): \(self.decoding("append"))")
            if self.type.isPackable { printer.print("case \(self.packedTag): \(self.decoding("packed"))") }
        case .map(let key, let value):
            let arguments = "&\(self.stored), keys: \(key.coding)"
            if value.isMessage {
                printer.print("case \(tag): decoder.messageMap(\(arguments))")
            } else if value.isEnum {
                printer.print("case \(tag): decoder.enumMap(\(arguments), unknown: &self.unknownFields)")
            } else {
                printer.print("case \(tag): decoder.map(\(arguments), values: \(value.coding))")
            }
        }
    }

    private func decoding(_ function: String) -> String {
        if self.type.isGroup { return "decoder.\(function)(&\(self.stored), tag)" }
        if self.type.isMessage { return "decoder.\(function)(&\(self.stored))" }
        guard self.type.isEnum else { return "decoder.\(function)(&\(self.stored), \(self.type.coding))" }
        let name = function == "enumerations" ? function : "enumeration"
        return "decoder.\(name)(&\(self.stored), &self.unknownFields)"
    }

    private func printDecodingCase(of oneof: OneofDescriptor, _ printer: inout CodePrinter) {
        let property = self.property(of: oneof)
        if self.type.isMessage {
            printer.print("case \(self.tag):")
            printer.printIndented(
                "var message: \(self.type.name)?",
                "if case .\(self.used)(let present)? = \(property) { message = present }",
                self.type.isGroup ? "decoder.group(&message, tag)" : "decoder.message(&message)",
                "\(property) = message.map { \(self.made(of: oneof, "$0")) }"
            )
        } else if self.type.isEnum {
            printer.print("case \(self.tag):")
            printer.printIndented(
                "var value: \(self.type.name)?",
                "decoder.enumeration(&value, &self.unknownFields)",
                "if let value { \(property) = \(self.made(of: oneof, "value")) }"
            )
        } else {
            printer.print(
                "case \(self.tag): \(property) = \(self.made(of: oneof, "decoder.read(\(self.type.coding))"))"
            )
        }
    }

    // MARK: - Encoding

    /// The statement that encodes the field; nil for fields of oneofs, which are encoded together.
    var encoding: String? {
        switch self.shape {
        case .oneof: nil
        case .implicit: self.encoding("value", self.tag)
        case .optional: self.encoding(self.messageFunction ?? "optional", self.tag)
        case .array where self.type.isMessage: self.encoding(self.type.isGroup ? "groups" : "messages", self.tag)
        case .array: self.field.isPacked ? self.encoding("packed", self.packedTag) : self.encoding("values", self.tag)
        case .map(let key, let value):
            value.isMessage
                ? "encoder.messageMap(\(self.tag), \(self.stored), keys: \(key.coding))"
                : "encoder.map(\(self.tag), \(self.stored), keys: \(key.coding), values: \(value.coding))"
        }
    }

    private func encoding(_ function: String, _ tag: UInt32) -> String {
        "encoder.\(function)(\(tag), \(self.stored)\(self.type.isMessage ? "" : ", as: \(self.type.coding)"))"
    }

    /// The branch that encodes the field in its oneof.
    var encodingCase: String {
        let arguments = self.type.isMessage ? "" : ", as: \(self.type.coding)"
        let function = self.messageFunction ?? "optional"
        return "case .\(self.used)(let value)?: encoder.\(function)(\(self.tag), value\(arguments))"
    }

    /// The function of decoder and encoder for a single message; nil for other types.
    private var messageFunction: String? { self.type.isGroup ? "group" : self.type.isMessage ? "message" : nil }

    private var tag: UInt32 {
        if case .map = self.shape { return UInt32(bitPattern: self.field.number) << 3 | 2 }
        return self.type.tag(self.field.number)
    }

    private var packedTag: UInt32 { UInt32(bitPattern: self.field.number) << 3 | 2 }

    // MARK: - Required fields

    /// The statement that checks the required fields of the field's messages; nil if there are none.
    var check: String? {
        switch self.shape {
        case .oneof: return nil
        case .optional:
            let storage = self.outerStorage
            var statements: [String] = []
            if self.field.isRequired {
                statements.append(
                    "if \(storage) == nil { throw \(Names.runtime).MessageError(missing: \"\(self.field.name)\", "
                        + "in: Self.self) }"
                )
            }
            if self.mayLackRequired { statements.append("try \(storage)?.checkRequired()") }
            return statements.isEmpty ? nil : statements.joined(separator: "\n")
        case .array where self.mayLackRequired:
            return "for message in self.\(self.used) { try message.checkRequired() }"
        case .map(_, let value) where value.isMessage && self.mayLackRequired:
            return "for message in self.\(self.used).values { try message.checkRequired() }"
        case .implicit, .array, .map: return nil
        }
    }

    /// The branch that checks the field in its oneof; nil if nothing is required.
    var checkCase: String? {
        self.mayLackRequired ? "case .\(self.used)(let value)?: try value.checkRequired()" : nil
    }

    /// Whether messages in the field may lack a required field.
    private var mayLackRequired: Bool {
        var value = self.field
        if case .map = self.shape, let entry = self.field.messageType.mapKeyAndValue { value = entry.value }
        return (value.type == .message || value.type == .group)
            && self.context.required.mayBeMissing(in: value.messageType)
    }

    // MARK: - Names

    /// The name of the property, after a dot.
    private var used: String { Names.used(self.names.name) }

    /// The stored property, as the code that decodes and encodes refers to it.
    private var stored: String {
        if case .optional = self.shape { "self.\(self.names.prefixed)" } else { "self.\(self.used)" }
    }

    /// The storage of an optional field, as the message refers to it.
    private var outerStorage: String {
        self.isOnHeap ? "\(HeapNames.fields).\(self.names.prefixed)" : "self.\(self.names.prefixed)"
    }

    private func property(of oneof: OneofDescriptor) -> String {
        "self.\(Names.used(self.context.names.property(oneof)))"
    }

    private func made(of oneof: OneofDescriptor, _ value: String) -> String {
        let type = Names.isOptionals(self.used) ? self.context.names.namer.relativeName(oneof: oneof) : ""
        return "\(type).\(self.used)(\(value))"
    }
}
