import Foundation

/// A configuration, and the folder from which its paths are seen.
struct GeneratorSettings {
    var configuration = GeneratorConfiguration()
    /// Where it was read from, if it was.
    var file: URL?
    var folder: URL

    /// The defaults.
    init(folder: URL) {
        self.folder = folder
    }

    init(contentsOf file: URL) throws {
        self.configuration = try GeneratorConfiguration(contentsOf: file)
        self.file = file
        self.folder = file.deletingLastPathComponent()
    }

    /// The nearest configuration beside or above a file or folder, but not above `root`.
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

    /// Where imports are looked for, besides the protos that HHSocket has itself.
    var importPaths: [URL] {
        self.configuration.importPaths?.map { self.url($0) } ?? [self.folder]
    }

    /// The files of `protoFiles`, if there are such.
    func listedProtos() throws -> [URL]? {
        try self.configuration.protoFiles?.map { path in
            let file = self.url(path)
            guard path.hasSuffix(".proto"), FileManager.default.fileExists(atPath: file.path) else {
                throw PluginError("\(self.file?.path ?? ""): \"protoFiles\": there is no file \(file.path).")
            }
            return file
        }
    }

    /// What `protoc` calls a file: its path below the first import path that it is in.
    func name(of proto: URL) throws -> String {
        for folder in self.importPaths {
            if let name = proto.path(below: folder) { return name }
        }
        throw PluginError(
            "\(proto.path) is in none of the import paths: \(self.importPaths.map(\.path).joined(separator: ", "))."
                + (self.file.map { " Set \"importPaths\" in \($0.path)." } ?? "")
        )
    }

    /// What `protoc` is to be called with.
    func arguments(for names: [String], generator: URL, output: URL) throws -> [String] {
        var arguments = [
            "--plugin=protoc-gen-hhsocket=\(generator.path)",
            "--hhsocket_out=\(output.path)",
            "--hhsocket_opt=\(self.configuration.generatorOptions.joined(separator: ","))",
        ]
        for folder in try self.importPaths + [OwnProtos.folder()] {
            arguments.append("--proto_path=\(folder.path)")
        }
        return arguments + names
    }
}

extension URL {
    /// Whether this is `folder` or in it.
    func isInside(_ folder: URL) -> Bool {
        let folder = folder.standardizedFileURL.pathComponents
        return self.standardizedFileURL.pathComponents.prefix(folder.count).elementsEqual(folder)
    }

    /// The path from `folder` to here; `nil` if this is not in it.
    func path(below folder: URL) -> String? {
        guard self.isInside(folder) else { return nil }
        let components = self.standardizedFileURL.pathComponents
        return components.dropFirst(folder.standardizedFileURL.pathComponents.count).joined(separator: "/")
    }
}
