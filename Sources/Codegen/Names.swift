// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// The names of elements in Swift. They are those of swift-protobuf, which makes it easy to switch between the two.
struct Names {
    /// The module with the runtime of messages.
    static let runtime = "HHSocketMessage"
    /// The version of the interface between generated code and the runtime, in `GeneratedCode` of the runtime.
    static let codeVersion = "Version1"

    let namer: SwiftProtobufNamer
    private let serviceSuffix: String

    init(options: GeneratorOptions, file: FileDescriptor) {
        // The module of the well-known types. The namer also avoids its name, which qualifies names in generated code.
        let module = options.messages == .hhsocket ? Self.runtime : "SwiftProtobuf"
        self.namer = SwiftProtobufNamer(
            currentFile: file,
            protoFileToModuleMappings: options.modules.mappings(runtime: module)
        )
        self.serviceSuffix = options.serviceSuffix
    }

    /// The name of the enum generated for a service.
    func service(_ service: ServiceDescriptor) -> String {
        let name = self.namer.typePrefix(forFile: service.file) + service.name + self.serviceSuffix
        return Self.reservedTypes.contains(name) ? "\(name)Service" : name
    }

    /// The names of a field's property and of its other members, each with `_p` if one of them would have the name of a
    /// type that is nested in the message, or of a function of it.
    ///
    /// - Parameter hasPresence: Whether the field also has stored, `has…` and `clear…` members.
    func property(_ field: FieldDescriptor, hasPresence: Bool) -> SwiftProtobufNamer.MessageFieldNames {
        let names = self.namer.messagePropertyNames(field: field, prefixed: "_", includeHasAndClear: hasPresence)
        let taken = self.takenNames(in: field.containingType)
        guard [names.name, names.prefixed, names.has, names.clear].contains(where: taken.contains) else { return names }
        func other(_ name: String) -> String { name.isEmpty ? "" : "\(Self.used(name))_p" }
        return (other(names.name), other(names.prefixed), other(names.has), other(names.clear))
    }

    /// The name of a oneof's property, with `_p` if a type that is nested in the message, or a function of it, has it.
    func property(_ oneof: OneofDescriptor) -> String {
        let name = self.namer.messagePropertyName(oneof: oneof).name
        return self.takenNames(in: oneof.containingType).contains(name) ? "\(Self.used(name))_p" : name
    }

    /// The fields of a message by the names of their properties and other members.
    func members(of message: Descriptor) -> [String: FieldDescriptor] {
        var members: [String: FieldDescriptor] = [:]
        for field in message.fields {
            let names = self.property(field, hasPresence: field.hasPresence && field.realContainingOneof == nil)
            for name in [names.name, names.has, names.clear] where !name.isEmpty { members[name] = field }
        }
        return members
    }

    /// The name of an enum's case, as declared; with an underscore if a member of each generated enum has it.
    func enumCase(_ value: EnumValueDescriptor) -> String {
        let name = self.namer.relativeName(enumValue: value)
        return ["enumDescriptor", "typeDescriptor"].contains(name) ? "\(name)_" : name
    }

    /// The names that a property of a message cannot have: those of its types, and of a function without arguments.
    private func takenNames(in message: Descriptor?) -> Set<String> {
        guard let message else { return [] }
        let enums = message.enums.map { self.namer.relativeName(enum: $0) }
        return Set(enums + message.nested.map { self.namer.relativeName(message: $0) } + ["checkRequired"])
    }

    /// The method's name after a dot; use ``declared(_:)`` for its declaration.
    func method(_ method: MethodDescriptor) -> String {
        let name = NamingUtils.toLowerCamelCase(method.name)
        return ["init", "self"].contains(name) ? "\(name)_" : name
    }

    /// The name of a mock's property with the handler of the method.
    func handler(_ method: MethodDescriptor) -> String {
        "on\(NamingUtils.toUpperCamelCase(method.name))"
    }

    /// A name in its declaration, where keywords need backticks.
    static func declared(_ name: String) -> String {
        self.keywords.contains(name) ? "`\(name)`" : name
    }

    /// A name after a dot, where keywords need no backticks.
    static func used(_ name: String) -> String {
        name.hasPrefix("`") ? String(name.dropFirst().dropLast()) : name
    }

    /// Whether a case of this name could be mistaken for one of `Optional`.
    static func isOptionals(_ name: String) -> Bool { name == "none" || name == "some" }

    private static let keywords =
        swiftKeywordsUsedInDeclarations.union(swiftKeywordsUsedInStatements).union(
            swiftKeywordsUsedInExpressionsAndTypes
        )
    private static let reservedTypes = Self.keywords.union(swiftCommonTypes).union([
        "Equatable", "Foundation", "FoundationEssentials", "HHSocketMessage", "HHSocketRPC", "HHSocketServer",
        "HHSocketSwiftProtobuf", "Hashable", "Never", "Protocol", "Sendable", "Swift", "SwiftProtobuf", "Type",
        // Types of the router, whose extension registers services.
        "Handler", "SynchronousHandler",
    ])
}
