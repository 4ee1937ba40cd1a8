// SPDX-License-Identifier: Apache-2.0
import Foundation

/// The contents of `hhsocket-generator-config.json`; keys that it omits have the generator's defaults.
struct GeneratorConfiguration {
    static let fileName = "hhsocket-generator-config.json"

    /// The files to generate code for; nil for every `.proto` below the folder of the configuration.
    var protoFiles: [String]?
    var visibility: String?
    var messages: String?
    var client: Bool?
    var server: Bool?
    var mocks: Bool?
    var fileNaming = FileNaming.fullPath
    var modules: Modules?
    var useAccessLevelOnImports: Bool?
    var serviceSuffix: String?
    /// The import paths; nil for the folder of the configuration.
    var importPaths: [String]?
    var protocPath: String?

    /// The modules of imported `.proto` files.
    enum Modules: Equatable {
        /// A file in swift-protobuf's format of mappings; its path.
        case file(String)
        /// The files of each module.
        case files([String: [String]])
    }

    init() {}

    init(contentsOf file: URL) throws {
        do {
            self = try JSONDecoder().decode(Self.self, from: Data(contentsOf: file))
        } catch let error as DecodingError {
            throw PluginError("\(file.path): \(Self.explanation(of: error))")
        } catch {
            throw PluginError("\(file.path): \(error)")
        }
    }

    /// The values of `--hhsocket_opt`, but for the file of ``modules``, whose path is relative to the configuration.
    var generatorOptions: [String] {
        var options: [String] = []
        if let visibility { options.append("Visibility=\(visibility)") }
        if let messages { options.append("Messages=\(messages)") }
        if let client { options.append("Client=\(client)") }
        if let server { options.append("Server=\(server)") }
        if let mocks { options.append("Mocks=\(mocks)") }
        options.append("FileNaming=\(self.fileNaming.rawValue)")
        if case .files(let modules) = self.modules {
            for (module, files) in modules.sorted(by: { $0.key < $1.key }) {
                options += files.map { "Module=\(module):\($0)" }
            }
        }
        if let useAccessLevelOnImports { options.append("UseAccessLevelOnImports=\(useAccessLevelOnImports)") }
        if let serviceSuffix { options.append("ServiceSuffix=\(serviceSuffix)") }
        return options
    }
}

extension GeneratorConfiguration: Decodable {
    private enum Key: String, CodingKey, CaseIterable {
        case protoFiles, visibility, messages, client, server, mocks, fileNaming, modules, useAccessLevelOnImports
        case serviceSuffix, importPaths, protocPath
    }

    private struct AnyKey: CodingKey {
        var stringValue: String
        var intValue: Int? { nil }

        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }

    init(from decoder: any Decoder) throws {
        for key in try decoder.container(keyedBy: AnyKey.self).allKeys where Key(rawValue: key.stringValue) == nil {
            let known = Key.allCases.map(\.rawValue).joined(separator: ", ")
            throw DecodingError.dataCorrupted(
                .init(codingPath: [], debugDescription: "there is no key \"\(key.stringValue)\"; there are \(known).")
            )
        }
        let values = try decoder.container(keyedBy: Key.self)

        /// Decodes one of `choices`, in any letter case.
        func choice(_ key: Key, _ choices: [String]) throws -> String? {
            guard let value = try values.decodeIfPresent(String.self, forKey: key) else { return nil }
            if let choice = choices.first(where: { $0.lowercased() == value.lowercased() }) { return choice }
            throw DecodingError.dataCorruptedError(
                forKey: key,
                in: values,
                debugDescription: "there is no \"\(value)\"; there are \(choices.joined(separator: ", "))."
            )
        }

        self.protoFiles = try values.decodeIfPresent([String].self, forKey: .protoFiles)
        self.visibility = try choice(.visibility, ["Public", "Package", "Internal"])
        self.messages = try choice(.messages, ["HHSocket", "SwiftProtobuf"])
        self.client = try values.decodeIfPresent(Bool.self, forKey: .client)
        self.server = try values.decodeIfPresent(Bool.self, forKey: .server)
        self.mocks = try values.decodeIfPresent(Bool.self, forKey: .mocks)
        if let naming = try choice(.fileNaming, FileNaming.allCases.map(\.rawValue)) {
            self.fileNaming = FileNaming(rawValue: naming) ?? .fullPath
        }
        self.modules = try values.decodeIfPresent(Modules.self, forKey: .modules)
        self.useAccessLevelOnImports = try values.decodeIfPresent(Bool.self, forKey: .useAccessLevelOnImports)
        self.serviceSuffix = try values.decodeIfPresent(String.self, forKey: .serviceSuffix)
        self.importPaths = try values.decodeIfPresent([String].self, forKey: .importPaths)
        self.protocPath = try values.decodeIfPresent(String.self, forKey: .protocPath)
    }

    private static func explanation(of error: DecodingError) -> String {
        switch error {
        case .typeMismatch(let type, let context), .valueNotFound(let type, let context):
            return "\(self.path(context.codingPath))must be \(self.name(of: type))."
        case .dataCorrupted(let context):
            if let underlying = context.underlyingError {
                let reason = (underlying as NSError).userInfo[NSDebugDescriptionErrorKey] as? String
                return "this is not JSON: \(reason ?? "\(underlying)")"
            }
            return "\(self.path(context.codingPath))\(context.debugDescription)"
        default:
            return "\(error)"
        }
    }

    private static func path(_ keys: [any CodingKey]) -> String {
        guard let first = keys.first else { return "" }
        let indices = keys.dropFirst().map { $0.intValue.map { "[\($0)]" } ?? ".\($0.stringValue)" }
        return "\"\(first.stringValue)\(indices.joined())\": "
    }

    private static func name(of type: Any.Type) -> String {
        switch type {
        case is Bool.Type: "true or false"
        case is String.Type: "a string"
        case is [Any].Type, is [String].Type: "a list of strings"
        default: "an object"
        }
    }
}

extension GeneratorConfiguration.Modules: Decodable {
    init(from decoder: any Decoder) throws {
        let value = try decoder.singleValueContainer()
        if let path = try? value.decode(String.self) {
            self = .file(path)
        } else if let files = try? value.decode([String: [String]].self) {
            self = .files(files)
        } else {
            throw DecodingError.dataCorruptedError(
                in: value,
                debugDescription: "must be a path, or an object with a list of files for each module."
            )
        }
    }
}
