import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// What things are called in Swift: as swift-protobuf calls them, so that people can move between the two.
struct Names {
    /// The module with the runtime of messages.
    static let runtime = "HHSocketMessage"

    let namer: SwiftProtobufNamer

    init(options: GeneratorOptions, file: FileDescriptor) {
        // The module of the well-known types. The namer avoids its name too, which generated code says in full.
        let module = options.messages == .protobufC ? Self.runtime : "SwiftProtobuf"
        self.namer = SwiftProtobufNamer(
            currentFile: file,
            protoFileToModuleMappings: ProtoFileToModuleMappings(swiftProtobufModuleName: module)
        )
    }

    /// The enum that a service becomes.
    func service(_ service: ServiceDescriptor) -> String {
        let name = self.namer.typePrefix(forFile: service.file) + service.name
        return Self.reservedTypes.contains(name) ? "\(name)Service" : name
    }

    /// As it is written behind a point; where it is declared, ``declared(_:)`` is written.
    func method(_ method: MethodDescriptor) -> String {
        let name = NamingUtils.toLowerCamelCase(method.name)
        return ["init", "self"].contains(name) ? "\(name)_" : name
    }

    /// The property of a mock that answers for the method.
    func handler(_ method: MethodDescriptor) -> String {
        "on\(NamingUtils.toUpperCamelCase(method.name))"
    }

    /// A name where it is declared: keywords need backticks.
    static func declared(_ name: String) -> String {
        self.keywords.contains(name) ? "`\(name)`" : name
    }

    /// A name behind a point, where keywords need no backticks.
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
