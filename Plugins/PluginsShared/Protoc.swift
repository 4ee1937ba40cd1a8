// SPDX-License-Identifier: Apache-2.0
import Foundation

/// The system's `protoc`. Swift-protobuf has one too, but that consists of some 300 C++ files, too many to compile for
/// a few lines of Swift.
enum Protoc {
    /// The folders to search besides PATH, which is short in Xcode.
    private static let folders = ["/opt/homebrew/bin", "/usr/local/bin", "/usr/bin"]
    private static let advice =
        "Install it with `apt install protobuf-compiler libprotobuf-dev` or `brew install protobuf`, or "
        + "say where it is: in the environment variable \(ProtocSearch.variable), or as \"protocPath\" in "
        + "\(GeneratorConfiguration.fileName)."

    /// Returns the `protoc` named by the environment, else by the configuration, relative to its folder, else the first
    /// one in PATH or `folders`.
    static func find(
        _ settings: GeneratorSettings,
        in environment: [String: String] = ProcessInfo.processInfo.environment
    ) throws -> URL {
        if let path = ProtocSearch.namedPath(in: environment) {
            return try self.program(URL(fileURLWithPath: path), "The environment variable \(ProtocSearch.variable)")
        }
        if let path = settings.configuration.protocPath {
            return try self.program(settings.url(path), "\"protocPath\" in \(settings.file?.path ?? "the options")")
        }
        if let path = ProtocSearch.firstPath(in: environment, orIn: self.folders) { return URL(fileURLWithPath: path) }
        throw PluginError(
            "There is no protoc, the compiler of protocol buffers, in PATH or "
                + "\(self.folders.joined(separator: ", ")). \(self.advice)"
        )
    }

    private static func program(_ file: URL, _ source: String) throws -> URL {
        if FileManager.default.isExecutableFile(atPath: file.path) { return file }
        throw PluginError("\(source) names \(file.path), where there is no protoc. \(self.advice)")
    }
}
