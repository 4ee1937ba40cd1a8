import Foundation
import PackagePlugin

/// Generates Swift for the `.proto` files of a target whenever it is built.
@main
struct HHSocketGenerator: BuildToolPlugin {
    func createBuildCommands(context: PluginContext, target: any Target) throws -> [Command] {
        let generator = try context.tool(named: "protoc-gen-hhsocket").url
        let batches = try ProtoFinder.batches(in: target.directoryURL, package: context.package.directoryURL)
        guard !batches.isEmpty else {
            throw PluginError("The target \(target.name) uses HHSocketGenerator, but there is no .proto for it.")
        }
        var commands: [Command] = []
        var outputs: [String: URL] = [:]
        for batch in batches {
            let protoc = try Protoc.find(batch.settings)
            for proto in batch.protos {
                let name = try batch.settings.name(of: proto)
                let output = context.pluginWorkDirectoryURL
                    .appendingPathComponent(batch.settings.configuration.fileNaming.outputName(of: name))
                // The compiler has no two files of the same name in a module, wherever they are.
                if let other = outputs.updateValue(proto, forKey: output.lastPathComponent) {
                    throw PluginError(
                        "\(other.path) and \(proto.path) would both become \(output.lastPathComponent). "
                            + "\"fileNaming\": \"PathToUnderscores\" in \(GeneratorConfiguration.fileName) tells them apart."
                    )
                }
                let folders = try batch.settings.importPaths + [OwnProtos.folder()]
                commands.append(
                    .buildCommand(
                        displayName: "Generating \(output.lastPathComponent)",
                        executable: protoc,
                        arguments: try batch.settings.arguments(
                            for: [name],
                            generator: generator,
                            output: context.pluginWorkDirectoryURL
                        ),
                        inputFiles: [proto, generator] + (batch.settings.file.map { [$0] } ?? [])
                            + ProtoFinder.imports(of: proto, in: folders),
                        outputFiles: [output]
                    )
                )
            }
        }
        return commands
    }
}
