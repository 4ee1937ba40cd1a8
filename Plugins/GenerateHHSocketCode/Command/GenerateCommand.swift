// SPDX-License-Identifier: Apache-2.0
import Foundation

/// Runs `protoc` once for all files with the same configuration, so that duplicate numbers are found.
struct GenerateCommand {
    var arguments: CommandArguments
    var package: URL
    var generator: URL

    /// Generates code for files and folders.
    func generate(for paths: [String], into output: URL) throws {
        var batches: [ProtoBatch] = []
        for path in paths {
            let file = URL(fileURLWithPath: path).standardizedFileURL
            var isFolder: ObjCBool = false
            guard FileManager.default.fileExists(atPath: file.path, isDirectory: &isFolder) else {
                throw PluginError("There is no file \(file.path).")
            }
            if isFolder.boolValue {
                let found = try ProtoFinder.batches(in: file, package: self.package)
                guard !found.isEmpty else { throw PluginError("There is no .proto file in \(file.path).") }
                batches += found
                continue
            }
            guard file.pathExtension == "proto" else { throw PluginError("\(file.path) is not a .proto file.") }
            let folder = file.deletingLastPathComponent()
            let settings =
                try GeneratorSettings.nearest(to: folder, within: self.package) ?? GeneratorSettings(folder: folder)
            batches.append(ProtoBatch(settings: settings, protos: [file]))
        }
        for batch in try self.merged(batches) {
            try self.run(batch, into: output)
        }
    }

    /// Generates code for a target, into `output` or, by default, into the folder to which the configuration's paths
    /// are relative. Returns the number of `.proto` files.
    func generate(in folder: URL, into output: URL?) throws -> Int {
        let batches = try self.merged(ProtoFinder.batches(in: folder, package: self.package))
        for batch in batches {
            let inside = batch.settings.folder.isInside(folder) ? batch.settings.folder : folder
            try self.run(batch, into: output ?? inside)
        }
        return batches.map(\.protos.count).reduce(0, +)
    }

    /// Applies the options, which override configurations, and merges batches with the same configuration.
    private func merged(_ batches: [ProtoBatch]) throws -> [ProtoBatch] {
        var merged: [ProtoBatch] = []
        for var batch in batches {
            if let file = self.arguments.configuration {
                batch.settings = try GeneratorSettings(contentsOf: URL(fileURLWithPath: file))
            }
            if !self.arguments.importPaths.isEmpty {
                // Relative to the current folder, not to the configuration's.
                batch.settings.configuration.importPaths = self.arguments.importPaths.map {
                    URL(fileURLWithPath: $0).standardizedFileURL.path
                }
            }
            if let index = merged.firstIndex(where: {
                $0.settings.folder == batch.settings.folder && $0.settings.file == batch.settings.file
            }) {
                let known = merged[index].protos
                merged[index].protos += batch.protos.filter { !known.contains($0) }
            } else {
                merged.append(batch)
            }
        }
        return merged
    }

    private func run(_ batch: ProtoBatch, into output: URL) throws {
        let protoc = try Protoc.find(batch.settings)
        let names = try batch.protos.map { try batch.settings.name(of: $0) }
        let arguments = try batch.settings.arguments(for: names, generator: self.generator, output: output)
        if self.arguments.isVerbose { print(([protoc.path] + arguments).joined(separator: " ")) }
        try FileManager.default.createDirectory(at: output, withIntermediateDirectories: true)

        // protoc prints its own messages.
        let process = Process()
        process.executableURL = protoc
        process.arguments = arguments
        try process.run()
        process.waitUntilExit()
        guard process.terminationStatus == 0 else {
            throw PluginError("\(protoc.path) failed; what it said is above.")
        }
        for name in names {
            print(output.appendingPathComponent(batch.settings.configuration.fileNaming.outputName(of: name)).path)
        }
    }
}
