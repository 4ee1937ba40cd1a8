/// What `--hhsocket_opt` said.
struct GeneratorOptions {
    /// The access level of what is generated.
    enum Visibility: String, CaseIterable {
        case `public` = "Public"
        case package = "Package"
        case `internal` = "Internal"
    }

    /// Whose messages: ours on libprotobuf-c, or those that protoc-gen-swift generates.
    enum Messages: String, CaseIterable {
        case protobufC = "ProtobufC"
        case swiftProtobuf = "SwiftProtobuf"
    }

    private static let names = ["Visibility", "Messages", "Client", "Server", "Mocks", "FileNaming"]

    var visibility = Visibility.internal
    var messages = Messages.protobufC
    var client = true
    var server = true
    /// Without a client there are mocks only where they are asked for.
    var mocks = true
    var fileNaming = FileNaming.fullPath

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
            // What two commas leave between them.
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

    private static func choice<Choice: CaseIterable & RawRepresentable<String>>(
        _ key: String,
        _ value: String
    ) throws(OptionError) -> Choice {
        // In any case of letters, as in the plugin's configuration.
        guard let choice = Choice.allCases.first(where: { $0.rawValue.lowercased() == value.lowercased() }) else {
            throw OptionError(text: "\(key)=\(value): expected \(listed(Choice.allCases.map(\.rawValue)))")
        }
        return choice
    }
}

/// What is wrong with the options.
struct OptionError: Error, CustomStringConvertible {
    var text: String

    var description: String { "--hhsocket_opt: \(self.text)" }
}

/// `a, b or c`.
private func listed(_ names: [String]) -> String {
    guard let last = names.last, names.count > 1 else { return names.first ?? "" }
    return "\(names.dropLast().joined(separator: ", ")) or \(last)"
}
