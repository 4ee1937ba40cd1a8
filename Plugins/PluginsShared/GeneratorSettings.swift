// SPDX-License-Identifier: Apache-2.0
import Foundation

/// A configuration, and the folder to which its paths are relative.
struct GeneratorSettings {
    var configuration = GeneratorConfiguration()
    /// The file of the configuration; nil for the defaults.
    var file: URL?
    var folder: URL

    /// Creates the default settings.
    init(folder: URL) {
        self.folder = folder
    }

    init(contentsOf file: URL) throws {
        self.configuration = try GeneratorConfiguration(contentsOf: file)
        self.file = file
        self.folder = file.deletingLastPathComponent()
    }

    /// Returns the nearest configuration in or above a folder, but not above `root`.
    static func nearest(to folder: URL, within root: URL) throws -> GeneratorSettings? {
        var folder = folder.standardizedFileURL
        while folder.isInside(root) {
            let file = folder.appendingPathComponent(GeneratorConfiguration.fileName)
            if FileManager.default.fileExists(atPath: file.path) { return try GeneratorSettings(contentsOf: file) }
            folder.deleteLastPathComponent()
        }
        return nil
    }

    func url(_ path: String) -> URL {
        URL(fileURLWithPath: path, relativeTo: URL(fileURLWithPath: self.folder.path, isDirectory: true))
            .standardizedFileURL
    }

    /// The import paths, besides that of HHSocket's own protos.
    var importPaths: [URL] {
        self.configuration.importPaths?.map { self.url($0) } ?? [self.folder]
    }

    /// The file of the modules' mappings; nil without any.
    var moduleMappings: URL? {
        if case .file(let path) = self.configuration.modules { self.url(path) } else { nil }
    }

    /// Returns the files of `protoFiles`; nil if the configuration does not list any.
    func listedProtos() throws -> [URL]? {
        try self.configuration.protoFiles?.map { path in
            let file = self.url(path)
            guard path.hasSuffix(".proto"), FileManager.default.fileExists(atPath: file.path) else {
                throw PluginError("\(self.file?.path ?? ""): \"protoFiles\": there is no file \(file.path).")
            }
            return file
        }
    }

    /// Returns `protoc`'s name of a file: its path below the first import path that contains it.
    func name(of proto: URL) throws -> String {
        for folder in self.importPaths {
            if let name = proto.path(below: folder) { return name }
        }
        throw PluginError(
            "\(proto.path) is in none of the import paths: \(self.importPaths.map(\.path).joined(separator: ", "))."
                + (self.file.map { " Set \"importPaths\" in \($0.path)." } ?? "")
        )
    }

    /// Returns the arguments of `protoc`.
    func arguments(for names: [String], generator: URL, output: URL) throws -> [String] {
        var options = self.configuration.generatorOptions
        if let mappings = self.moduleMappings { options.append("ProtoPathModuleMappings=\(mappings.path)") }
        var arguments = [
            "--plugin=protoc-gen-hhsocket=\(generator.path)",
            "--hhsocket_out=\(output.path)",
            "--hhsocket_opt=\(options.joined(separator: ","))",
        ]
        for folder in try self.importPaths + [OwnProtos.folder()] {
            arguments.append("--proto_path=\(folder.path)")
        }
        return arguments + names
    }
}

extension URL {
    /// Whether this is `folder` or inside it.
    func isInside(_ folder: URL) -> Bool {
        let folder = folder.standardizedFileURL.pathComponents
        return self.standardizedFileURL.pathComponents.prefix(folder.count).elementsEqual(folder)
    }

    /// Returns the path from `folder` to here; nil if this is not inside it.
    func path(below folder: URL) -> String? {
        guard self.isInside(folder) else { return nil }
        let components = self.standardizedFileURL.pathComponents
        return components.dropFirst(folder.standardizedFileURL.pathComponents.count).joined(separator: "/")
    }
}
