import Foundation

/// Where the system's `protoc` is looked for. The SwiftPM plugins and the command share this file.
enum ProtocSearch {
    /// The environment variable that names it, which overrides everything else.
    static let variable = "PROTOC_PATH"

    /// The path in ``variable``, whether or not there is a program; nil if the variable is not set.
    static func namedPath(in environment: [String: String]) -> String? {
        guard let path = environment[self.variable], !path.isEmpty else { return nil }
        return path
    }

    /// The path of the first one in PATH; nil if there is none.
    ///
    /// - Parameter folders: Others to search then. None by default.
    static func firstPath(in environment: [String: String], orIn folders: [String] = []) -> String? {
        let searched = (environment["PATH"] ?? "").split(separator: ":").map(String.init) + folders
        return searched.map { "\($0)/protoc" }.first { FileManager.default.isExecutableFile(atPath: $0) }
    }
}
