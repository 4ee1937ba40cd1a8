import Foundation

/// Files to generate for, and how.
struct ProtoBatch {
    var settings: GeneratorSettings
    var protos: [URL]
}

/// Which `.proto` files belong to a folder, and by which configuration.
enum ProtoFinder {
    /// Each file goes by the nearest configuration beside or above it within the package, and without any by the
    /// defaults, with `folder` as its import path. A configuration inside the folder may list files that are elsewhere.
    static func batches(in folder: URL, package: URL) throws -> [ProtoBatch] {
        try self.batches(of: self.files(in: folder), in: folder, package: package)
    }

    /// - Parameter files: Those that belong to the target, which are within `folder`; what is no `.proto` and no
    ///   configuration is passed over.
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
        // What is above all of them is the last resort, and need not be there.
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

    /// Everything below a folder that is not hidden, in order.
    private static func files(in folder: URL) -> [URL] {
        let files = FileManager.default.enumerator(
            at: folder,
            includingPropertiesForKeys: nil,
            options: .skipsHiddenFiles
        )
        return (files?.compactMap { $0 as? URL } ?? []).map(\.standardizedFileURL).sorted { $0.path < $1.path }
    }

    /// What `protos` import, and what that imports, as far as it is in `folders`.
    static func imports(of proto: URL, in folders: [URL]) -> [URL] {
        var found: [URL] = []
        var open = [proto]
        while let file = open.popLast() {
            guard let text = try? String(contentsOf: file, encoding: .utf8) else { continue }
            // Statements may share a line. What looks like one in a comment names a file too many at most.
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

    /// `a/b.proto` of `import public "a/b.proto"`.
    private static func importedName(_ statement: Substring) -> String? {
        let statement = statement.trimmingCharacters(in: .whitespaces)
        guard statement.hasPrefix("import") else { return nil }
        let parts = statement.split(omittingEmptySubsequences: false) { $0 == "\"" || $0 == "'" }
        return parts.count >= 3 ? String(parts[1]) : nil
    }
}
