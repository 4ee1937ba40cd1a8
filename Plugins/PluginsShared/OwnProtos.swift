// SPDX-License-Identifier: Apache-2.0
import Foundation

/// HHSocket's own protos, which any file may import: `hhsocket/options.proto`.
enum OwnProtos {
    /// Returns the folder `Protos`, found from this source file: SwiftPM compiles plugins in place, in their own
    /// package.
    static func folder(source: String = #filePath) throws -> URL {
        var folder = URL(fileURLWithPath: source).deletingLastPathComponent()
        while folder.pathComponents.count > 1 {
            folder.deleteLastPathComponent()
            let protos = folder.appendingPathComponent("Protos")
            let options = protos.appendingPathComponent("hhsocket/options.proto")
            if FileManager.default.fileExists(atPath: options.path) { return protos }
        }
        throw PluginError("HHSocket's own Protos/hhsocket/options.proto is not where \(source) is.")
    }
}
