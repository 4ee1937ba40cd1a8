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
    /// The index among the message's fields, sorted by number.
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

    /// Whether the field, or its values if it is a map, have a closed enum, so that numbers may be unknown.
    var hasClosedEnum: Bool {
        if case .map(_, let value) = self.shape { value.isClosedEnum } else { self.type.isClosedEnum }
    }

    /// The field in the message's descriptor.
    var descriptor: String {
        let head = "\"\(self.field.name)\", \(self.field.number)"
        let presence: String
        switch self.shape {
        case .map(let key, let value):
            // A closed enum of a map's values is not passed: RecordReader.closedMap(_:_:) finds undeclared numbers,
            // since the whole entry, with its key, becomes the unknown field.
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

    /// The statement that sets the property to its value in an empty message; nil if none is required.
    ///
    /// It is in `init()` rather than at the property's declaration: otherwise `init(record:)` would execute it too, and
    /// then copy the whole message.
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

    /// The declaration of the stored property; nil if the property itself is stored.
    var storage: String? {
        guard case .optional = self.shape else { return nil }
        return "private var \(self.names.prefixed): "
            + (self.isBoxed ? "\(Names.runtime).Boxed<\(self.type.name)>?" : "\(self.type.name)?")
    }

    // MARK: - Records

    /// The statement that reads the field; nil for fields of oneofs, which are read together.
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

    /// - Parameter names: The names of the functions for most types, for messages, and for closed enums.
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

    /// The branch that reads the field in its oneof.
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

    /// The branch that writes the field in its oneof.
    var writingCase: String {
        let call = self.type.isMessage ? "try record.oneofMessage" : "record.oneof"
        return "case .\(self.used)(let value)?: \(call)(\(self.index), value)"
    }

    /// The index with which `RecordReader.oneof(_:)` is called.
    var recordIndex: Int { self.index }

    // MARK: - Names

    /// The name of the property, after a dot.
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
