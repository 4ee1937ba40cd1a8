// SPDX-License-Identifier: Apache-2.0
import Foundation

/// Files to generate code for, with their settings.
struct ProtoBatch {
    var settings: GeneratorSettings
    var protos: [URL]
}

/// Finds the `.proto` files of a folder, and their configurations.
enum ProtoFinder {
    /// Returns the files of a folder. Each has the nearest configuration beside or above it within the package or,
    /// without any, the defaults with `folder` as import path. A configuration inside the folder may list files
    /// elsewhere.
    static func batches(in folder: URL, package: URL) throws -> [ProtoBatch] {
        try self.batches(of: self.files(in: folder), in: folder, package: package)
    }

    /// Returns the batches of a target.
    ///
    /// - Parameter files: The files of the target, which are within `folder`. Anything but a `.proto` or a
    ///   configuration is ignored.
    static func batches(of files: [URL], in folder: URL, package: URL) throws -> [ProtoBatch] {
        var batches: [ProtoBatch] = []
        var found: [URL] = []
        for file in files {
            if file.lastPathComponent == GeneratorConfiguration.fileName {
                batches.append(ProtoBatch(settings: try GeneratorSettings(contentsOf: file), protos: []))
            } else if file.pathExtension == "proto" {
                found.append(file)
            }
        }
        // The configuration above all of them, or else the defaults, is the last resort.
        let last = try GeneratorSettings.nearest(to: folder, within: package) ?? GeneratorSettings(folder: folder)
        if !batches.contains(where: { $0.settings.file?.path == last.file?.path }) {
            batches.append(ProtoBatch(settings: last, protos: []))
        }
        // The deepest first.
        batches.sort { $0.settings.folder.pathComponents.count > $1.settings.folder.pathComponents.count }

        for index in batches.indices {
            let settings = batches[index].settings
            let below = found.filter { $0.isInside(settings.folder) }
            found.removeAll { $0.isInside(settings.folder) }
            guard let listed = try settings.listedProtos() else {
                batches[index].protos = below
                continue
            }
            let isAbove = folder.isInside(settings.folder) && settings.folder.path != folder.path
            batches[index].protos = isAbove ? listed.filter { $0.isInside(folder) } : listed
        }
        return batches.filter { !$0.protos.isEmpty }
    }

    /// Returns the files below a folder that are not hidden, in order.
    private static func files(in folder: URL) -> [URL] {
        let files = FileManager.default.enumerator(
            at: folder,
            includingPropertiesForKeys: nil,
            options: .skipsHiddenFiles
        )
        return (files?.compactMap { $0 as? URL } ?? []).map(\.standardizedFileURL).sorted { $0.path < $1.path }
    }

    /// Returns the direct and indirect imports of `proto`, as far as they are in `folders`.
    static func imports(of proto: URL, in folders: [URL]) -> [URL] {
        var found: [URL] = []
        var open = [proto]
        while let file = open.popLast() {
            guard let text = try? String(contentsOf: file, encoding: .utf8) else { continue }
            // Statements may share a line. An import in a comment at worst adds a file.
            for statement in text.split(whereSeparator: { $0 == ";" || $0.isNewline }) {
                guard let name = self.importedName(statement) else { continue }
                let candidates = folders.map { $0.appendingPathComponent(name) }
                guard let url = candidates.first(where: { FileManager.default.fileExists(atPath: $0.path) }),
                    url.path != proto.path, !found.contains(where: { $0.path == url.path })
                else { continue }
                found.append(url)
                open.append(url)
            }
        }
        return found
    }

    /// Returns `a/b.proto` of `import public "a/b.proto"`.
    private static func importedName(_ statement: Substring) -> String? {
        let statement = statement.trimmingCharacters(in: .whitespaces)
        guard statement.hasPrefix("import") else { return nil }
        let parts = statement.split(omittingEmptySubsequences: false) { $0 == "\"" || $0 == "'" }
        return parts.count >= 3 ? String(parts[1]) : nil
    }
}
