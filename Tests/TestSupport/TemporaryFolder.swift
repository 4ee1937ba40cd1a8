// SPDX-License-Identifier: Apache-2.0
import Foundation

/// A folder that is removed with the last reference to it. Its path is short: those of Unix domain sockets must be.
package final class TemporaryFolder: Sendable {
    package let path: String

    package init() throws {
        self.path = "/tmp/hh-\(UUID().uuidString.prefix(8))"
        try FileManager.default.createDirectory(atPath: self.path, withIntermediateDirectories: false)
    }

    deinit {
        try? FileManager.default.removeItem(atPath: self.path)
    }

    /// The path of a file in it.
    package func file(_ name: String) -> String { "\(self.path)/\(name)" }

    /// Writes a file into it, and returns its path.
    package func write(_ text: String, to name: String) throws -> String {
        let path = self.file(name)
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        return path
    }
}
