// SPDX-License-Identifier: Apache-2.0
import SwiftProtobufPluginLibrary

/// The options given with `--hhsocket_opt`.
struct GeneratorOptions {
    /// The access level of the generated declarations.
    enum Visibility: String, CaseIterable {
        case `public` = "Public"
        case package = "Package"
        case `internal` = "Internal"

        /// The modifier of declarations and imports.
        var keyword: String { self.rawValue.lowercased() }
    }

    /// The source of the messages: this generator, or protoc-gen-swift.
    enum Messages: String, CaseIterable {
        case hhsocket = "HHSocket"
        case swiftProtobuf = "SwiftProtobuf"
    }

    private static let names = [
        "Visibility", "Messages", "Client", "Server", "Mocks", "FileNaming", "ProtoPathModuleMappings", "Module",
        "UseAccessLevelOnImports", "ServiceSuffix",
    ]

    var visibility = Visibility.internal
    var messages = Messages.hhsocket
    var client = true
    var server = true
    /// Whether mocks are generated; by default, only with a client.
    var mocks = true
    var fileNaming = FileNaming.fullPath
    /// The modules of `.proto` files that are in other modules than the generated ones.
    var modules = ModuleMappings()
    /// Whether imports have the access level of the declarations; nil for the choice that compiles in most modules.
    var accessLevelOnImports: Bool?
    /// The suffix of the names of services; empty by default.
    var serviceSuffix = ""

    init() {}

    init(_ pairs: [(key: String, value: String)]) throws(OptionError) {
        var mocks: Bool?
        for (key, value) in pairs {
            switch key {
            case "Visibility": self.visibility = try Self.choice(key, value)
            case "Messages": self.messages = try Self.choice(key, value)
            case "Client": self.client = try Self.flag(key, value)
            case "Server": self.server = try Self.flag(key, value)
            case "Mocks": mocks = try Self.flag(key, value)
            case "FileNaming": self.fileNaming = try Self.choice(key, value)
            case "ProtoPathModuleMappings": try self.modules.add(contentsOf: value)
            case "Module": try self.modules.add(assignment: value)
            case "UseAccessLevelOnImports": self.accessLevelOnImports = try Self.flag(key, value)
            case "ServiceSuffix": self.serviceSuffix = try Self.suffix(key, value)
            // An empty option, between two commas.
            case "" where value.isEmpty: continue
            default: throw OptionError(text: "there is no option \(key); expected \(listed(Self.names))")
            }
        }
        self.mocks = mocks ?? self.client
    }

    private static func flag(_ key: String, _ value: String) throws(OptionError) -> Bool {
        guard let flag = Bool(value.lowercased()) else {
            throw OptionError(text: "\(key)=\(value): expected true or false")
        }
        return flag
    }

    private static func suffix(_ key: String, _ value: String) throws(OptionError) -> String {
        guard value.isEmpty || isValidSwiftIdentifier("_\(value)") else {
            throw OptionError(text: "\(key)=\(value): expected letters and digits, such as RPC")
        }
        return value
    }

    private static func choice<Choice: CaseIterable & RawRepresentable<String>>(
        _ key: String,
        _ value: String
    ) throws(OptionError) -> Choice {
        // Case-insensitive, as in the plugin's configuration.
        guard let choice = Choice.allCases.first(where: { $0.rawValue.lowercased() == value.lowercased() }) else {
            throw OptionError(text: "\(key)=\(value): expected \(listed(Choice.allCases.map(\.rawValue)))")
        }
        return choice
    }
}

/// An error in the options.
struct OptionError: Error, CustomStringConvertible {
    var text: String

    var description: String { "--hhsocket_opt: \(self.text)" }
}

/// Joins names, as in `a, b or c`.
private func listed(_ names: [String]) -> String {
    guard let last = names.last, names.count > 1 else { return names.first ?? "" }
    return "\(names.dropLast().joined(separator: ", ")) or \(last)"
}
