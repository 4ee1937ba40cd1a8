// SPDX-License-Identifier: Apache-2.0
import Foundation
import PackagePlugin

/// Generates Swift for the `.proto` files of a target whenever it is built.
@main
struct HHSocketGenerator: BuildToolPlugin {
    func createBuildCommands(context: PluginContext, target: any Target) throws -> [Command] {
        try self.commands(
            for: ProtoFinder.batches(in: target.directoryURL, package: context.package.directoryURL),
            of: target.name,
            generator: context.tool(named: "protoc-gen-hhsocket").url,
            output: context.pluginWorkDirectoryURL
        )
    }

    private func commands(
        for batches: [ProtoBatch],
        of target: String,
        generator: URL,
        output folder: URL
    ) throws -> [Command] {
        guard !batches.isEmpty else {
            throw PluginError("The target \(target) uses HHSocketGenerator, but there is no .proto for it.")
        }
        var commands: [Command] = []
        var outputs: [String: URL] = [:]
        for batch in batches {
            let protoc = try Protoc.find(batch.settings)
            for proto in batch.protos {
                let name = try batch.settings.name(of: proto)
                let output = folder.appendingPathComponent(batch.settings.configuration.fileNaming.outputName(of: name))
                // A module cannot have two files with the same name, even in different folders.
                if let other = outputs.updateValue(proto, forKey: output.lastPathComponent) {
                    throw PluginError(
                        "\(other.path) and \(proto.path) would both become \(output.lastPathComponent). "
                            + "\"fileNaming\": \"PathToUnderscores\" in \(GeneratorConfiguration.fileName) "
                            + "tells them apart."
                    )
                }
                let folders = try batch.settings.importPaths + [OwnProtos.folder()]
                commands.append(
                    .buildCommand(
                        displayName: "Generating \(output.lastPathComponent)",
                        executable: protoc,
                        arguments: try batch.settings.arguments(for: [name], generator: generator, output: folder),
                        inputFiles: [proto, generator]
                            + [batch.settings.file, batch.settings.moduleMappings].compactMap(\.self)
                            + ProtoFinder.imports(of: proto, in: folders),
                        outputFiles: [output]
                    )
                )
            }
        }
        return commands
    }
}

#if canImport(XcodeProjectPlugin)
import XcodeProjectPlugin

// Targets of Xcode projects: the `.proto` files among their sources. An Xcode target has no folder of its own, so the
// import path is the project's folder unless a configuration sets others.
extension HHSocketGenerator: XcodeBuildToolPlugin {
    func createBuildCommands(context: XcodePluginContext, target: XcodeTarget) throws -> [Command] {
        let project = context.xcodeProject.directoryURL
        let files = target.inputFiles.map(\.url.standardizedFileURL).sorted { $0.path < $1.path }
        return try self.commands(
            for: ProtoFinder.batches(of: files, in: project, package: project),
            of: target.displayName,
            generator: context.tool(named: "protoc-gen-hhsocket").url,
            output: context.pluginWorkDirectoryURL
        )
    }
}
#endif
