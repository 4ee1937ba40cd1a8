// SPDX-License-Identifier: Apache-2.0
import Foundation

/// The search for the system's `protoc`. The SwiftPM plugins and the command share this file.
enum ProtocSearch {
    /// The environment variable that names `protoc`, which overrides everything else.
    static let variable = "PROTOC_PATH"

    /// Returns the path in ``variable``, whether or not it is a program; nil if the variable is not set.
    static func namedPath(in environment: [String: String]) -> String? {
        guard let path = environment[self.variable], !path.isEmpty else { return nil }
        return path
    }

    /// Returns the path of the first `protoc` in PATH; nil if there is none.
    ///
    /// - Parameter folders: Folders to search after PATH. None by default.
    static func firstPath(in environment: [String: String], orIn folders: [String] = []) -> String? {
        let searched = (environment["PATH"] ?? "").split(separator: ":").map(String.init) + folders
        return searched.map { "\($0)/protoc" }.first { FileManager.default.isExecutableFile(atPath: $0) }
    }
}
