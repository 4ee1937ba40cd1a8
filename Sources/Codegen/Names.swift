import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// The names of elements in Swift. They are those of swift-protobuf, which makes it easy to switch between the two.
struct Names {
    /// The module with the runtime of messages.
    static let runtime = "HHSocketMessage"

    let namer: SwiftProtobufNamer

    init(options: GeneratorOptions, file: FileDescriptor) {
        // The module of the well-known types. The namer also avoids its name, which qualifies names in generated code.
        let module = options.messages == .protobufC ? Self.runtime : "SwiftProtobuf"
        self.namer = SwiftProtobufNamer(
            currentFile: file,
            protoFileToModuleMappings: ProtoFileToModuleMappings(swiftProtobufModuleName: module)
        )
    }

    /// The name of the enum generated for a service.
    func service(_ service: ServiceDescriptor) -> String {
        let name = self.namer.typePrefix(forFile: service.file) + service.name
        return Self.reservedTypes.contains(name) ? "\(name)Service" : name
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

    /// Whether a case of this name may be taken for one of `Optional`.
    static func isOptionals(_ name: String) -> Bool { name == "none" || name == "some" }

    private static let keywords =
        swiftKeywordsUsedInDeclarations.union(swiftKeywordsUsedInStatements).union(
            swiftKeywordsUsedInExpressionsAndTypes
        )
    private static let reservedTypes = Self.keywords.union(swiftCommonTypes).union([
        "Equatable", "Foundation", "FoundationEssentials", "HHSocketMessage", "HHSocketRPC", "HHSocketServer",
        "HHSocketSwiftProtobuf", "Hashable", "Never", "Protocol", "Sendable", "Swift", "SwiftProtobuf", "Type",
    ])
}
