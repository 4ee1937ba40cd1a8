import Foundation

/// The protos that everybody may import: `hhsocket/options.proto`.
enum OwnProtos {
    /// SwiftPM compiles plugins where their package is, whoever depends on it: from there it is not far to `Protos`.
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
