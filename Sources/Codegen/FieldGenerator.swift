import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// Writes what a message has for one of its fields.
struct FieldGenerator {
    /// What a field is in a message.
    private enum Shape {
        /// A value that is always there.
        case implicit
        /// A value that may be missing, kept beside the property.
        case optional
        case array
        case map(key: FieldType, value: FieldType)
        /// A case of an enum, under this name.
        case oneof(OneofDescriptor)
    }

    let field: FieldDescriptor
    /// Among the message's fields, by their numbers.
    private let index: Int
    private let context: Context
    private let shape: Shape
    private let type: FieldType
    private let names: SwiftProtobufNamer.MessageFieldNames
    private let isBoxed: Bool

    init(_ field: FieldDescriptor, index: Int, _ context: Context) {
        self.field = field
        self.index = index
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
        self.names = context.names.namer.messagePropertyNames(
            field: field,
            prefixed: "_",
            includeHasAndClear: isOptional
        )
        self.isBoxed = isOptional && context.recursion.isRecursive(field)
    }

    /// Whether reading the field may find numbers that its enum does not know.
    var hasClosedEnum: Bool {
        if case .map(_, let value) = self.shape { value.isClosedEnum } else { self.type.isClosedEnum }
    }

    /// The field in the message's descriptor.
    var descriptor: String {
        let head = "\"\(self.field.name)\", \(self.field.number)"
        let presence: String
        switch self.shape {
        case .map(let key, let value):
            // What an enum of a map's values does not know is found by whoever reads the map, with the key beside it.
            let inner = value.isMessage ? Self.inner(value) : ""
            return ".map(\(head), key: \(key.kind), value: \(value.kind)\(inner)),"
        case .implicit: presence = ""
        case .optional: presence = self.field.isRequired ? ", .required" : ", .explicit"
        case .array: presence = self.field.isPacked ? ", .packed" : ", .repeated"
        case .oneof(let oneof): presence = ", .oneof(\(oneof.index))"
        }
        return ".init(\(head), \(self.type.kind)\(presence)\(Self.inner(self.type))),"
    }

    private static func inner(_ type: FieldType) -> String {
        if type.isMessage { return ", message: { \(type.name).messageDescriptor }" }
        return type.isClosedEnum ? ", closed: \(type.name).self" : ""
    }

    // MARK: - Properties

    func printProperty(_ printer: inout CodePrinter) {
        let declaration = "\(DocComment.lines(of: self.field))\(self.context.access)var \(self.names.name): "
        switch self.shape {
        case .implicit: printer.print("\(declaration)\(self.type.name)")
        case .array: printer.print("\(declaration)[\(self.type.name)]")
        case .map(let key, let value): printer.print("\(declaration)[\(key.name): \(value.name)]")
        case .optional: self.printOptional(declaration, &printer)
        case .oneof(let oneof): self.printCase(of: oneof, declaration, &printer)
        }
    }

    /// Gives the property what it holds in an empty message; nil where there is nothing to say.
    ///
    /// In the initialiser rather than where the property is declared: else the one that reads a record would do it too,
    /// and then copy the whole message.
    var initialization: String? {
        switch self.shape {
        case .implicit: "self.\(self.used) = \(self.type.defaultValue)"
        case .array: "self.\(self.used) = []"
        case .map: "self.\(self.used) = [:]"
        case .optional, .oneof: nil
        }
    }

    private func printOptional(_ declaration: String, _ printer: inout CodePrinter) {
        let storage = "self.\(self.names.prefixed)"
        let access = self.context.access
        printer.print("\(declaration)\(self.type.name) {")
        printer.printIndented(
            "get { \(self.unboxed) ?? \(self.type.defaultValue) }",
            "set { \(storage) = \(self.isBoxed ? "\(Names.runtime).Boxed(newValue)" : "newValue") }"
        )
        printer.print(
            "}",
            "/// Whether `\(Names.used(self.names.name))` has a value.",
            "\(access)var \(self.names.has): Bool { \(storage) != nil }",
            "/// Leaves `\(Names.used(self.names.name))` without a value.",
            "\(access)mutating func \(self.names.clear)() { \(storage) = nil }"
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

    /// What keeps the value, where the property does not; nil where it does.
    var storage: String? {
        guard case .optional = self.shape else { return nil }
        return "private var \(self.names.prefixed): "
            + (self.isBoxed ? "\(Names.runtime).Boxed<\(self.type.name)>?" : "\(self.type.name)?")
    }

    // MARK: - Records

    /// Nil for fields of oneofs, which are read together.
    var reading: String? {
        let index = self.index
        switch self.shape {
        case .oneof: return nil
        case .implicit where self.type.isClosedEnum:
            return "self.\(self.used) = record.closed(\(index), &unknown) ?? \(self.type.defaultValue)"
        case .implicit: return "self.\(self.used) = record.value(\(index))"
        case .optional:
            let value =
                switch (self.type.isMessage, self.type.isClosedEnum) {
                case (true, _): self.isBoxed ? "record.boxed(\(index))" : "record.message(\(index))"
                case (_, true): "record.closed(\(index), &unknown)"
                default: "record.\(self.field.isRequired ? "required" : "optional")(\(index))"
                }
            return "self.\(self.names.prefixed) = \(value)"
        case .array:
            return "self.\(self.used) = \(Self.reading(self.type, ["array", "messages", "closedArray"], index))"
        case .map(_, let value):
            return "self.\(self.used) = \(Self.reading(value, ["map", "messageMap", "closedMap"], index))"
        }
    }

    /// - Parameter names: Of the functions for most types, for messages, and for closed enums.
    private static func reading(_ type: FieldType, _ names: [String], _ index: Int) -> String {
        if type.isMessage { return "record.\(names[1])(\(index))" }
        return type.isClosedEnum ? "record.\(names[2])(\(index), &unknown)" : "record.\(names[0])(\(index))"
    }

    var writing: String? {
        let index = self.index
        switch self.shape {
        case .oneof: return nil
        case .implicit: return "record.value(\(index), self.\(self.used))"
        case .optional where self.type.isMessage:
            return "try record.\(self.field.isRequired ? "requiredMessage" : "message")(\(index), \(self.unboxed))"
        case .optional:
            let call = self.field.isRequired ? "try record.required" : "record.optional"
            return "\(call)(\(index), \(self.unboxed))"
        case .array:
            return self.type.isMessage
                ? "try record.messages(\(index), self.\(self.used))" : "record.array(\(index), self.\(self.used))"
        case .map(_, let value):
            return value.isMessage
                ? "try record.messageMap(\(index), self.\(self.used))" : "record.map(\(index), self.\(self.used))"
        }
    }

    /// One branch of reading a oneof.
    func readingCase(of oneof: OneofDescriptor) -> String {
        let property = self.property(of: oneof)
        let head = "case \(self.field.number): \(property) = "
        if self.type.isClosedEnum {
            return head + "record.closed(\(self.index), &unknown).map { \(self.made(of: oneof, "$0")) }"
        }
        let value =
            self.type.isMessage
            ? "record.message(\(self.index)) ?? \(self.type.name)()" : "record.value(\(self.index))"
        return head + self.made(of: oneof, value)
    }

    /// One branch of writing a oneof.
    var writingCase: String {
        let call = self.type.isMessage ? "try record.oneofMessage" : "record.oneof"
        return "case .\(self.used)(let value)?: \(call)(\(self.index), value)"
    }

    /// The index by which a oneof is asked which of its fields it holds.
    var recordIndex: Int { self.index }

    // MARK: - Names

    /// The property, behind a point.
    private var used: String { Names.used(self.names.name) }

    private var unboxed: String { "self.\(self.names.prefixed)\(self.isBoxed ? "?.value" : "")" }

    private func property(of oneof: OneofDescriptor) -> String {
        "self.\(Names.used(self.context.names.namer.messagePropertyName(oneof: oneof).name))"
    }

    private func made(of oneof: OneofDescriptor, _ value: String) -> String {
        let type = Names.isOptionals(self.used) ? self.context.names.namer.relativeName(oneof: oneof) : ""
        return "\(type).\(self.used)(\(value))"
    }
}
