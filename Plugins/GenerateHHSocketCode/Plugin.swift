// SPDX-License-Identifier: Apache-2.0
import Foundation
import PackagePlugin

/// `swift package generate-hhsocket-code`: generates Swift to be checked in.
@main
struct GenerateHHSocketCode: CommandPlugin {
    func performCommand(context: PluginContext, arguments: [String]) throws {
        let arguments = try CommandArguments(arguments)
        if arguments.wantsHelp { return print(CommandArguments.help) }
        let command = GenerateCommand(
            arguments: arguments,
            package: context.package.directoryURL,
            generator: try context.tool(named: "protoc-gen-hhsocket").url
        )

        if !arguments.paths.isEmpty {
            guard let output = try arguments.output ?? self.onlyTarget(arguments, context)?.directoryURL.path else {
                throw PluginError("Where is the code of these files to be written? Give --output or one --target.")
            }
            return try command.generate(for: arguments.paths, into: URL(fileURLWithPath: output))
        }

        let targets =
            arguments.targets.isEmpty
            ? context.package.targets.filter { $0 is SwiftSourceModuleTarget } : try self.targets(arguments, context)
        var files = 0
        for target in targets {
            let output = arguments.output.map { URL(fileURLWithPath: $0) }
            let written = try command.generate(in: target.directoryURL, into: output)
            if written == 0, !arguments.targets.isEmpty {
                throw PluginError("The target \(target.name) has no .proto file, nor a configuration that lists any.")
            }
            files += written
        }
        if files == 0 {
            throw PluginError("No target has a .proto file, nor a configuration that lists any; see --help.")
        }
    }

    private func targets(_ arguments: CommandArguments, _ context: PluginContext) throws -> [any Target] {
        try arguments.targets.map { name in
            guard let target = context.package.targets.first(where: { $0.name == name }) else {
                throw PluginError(
                    "The package \(context.package.displayName) has no target \(name). A target without "
                        + "any Swift file is "
                        + "none to SwiftPM: add one, or give the paths and --output."
                )
            }
            return target
        }
    }

    private func onlyTarget(_ arguments: CommandArguments, _ context: PluginContext) throws -> (any Target)? {
        let targets = try self.targets(arguments, context)
        return targets.count == 1 ? targets.first : nil
    }
}
