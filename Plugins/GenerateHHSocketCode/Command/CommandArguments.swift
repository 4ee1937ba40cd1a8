// SPDX-License-Identifier: Apache-2.0
import Foundation

/// The arguments of `swift package generate-hhsocket-code`.
struct CommandArguments {
    static let help = """
        OVERVIEW: Generate Swift for HHSocket from .proto files, to be checked in.

        USAGE: swift package generate-hhsocket-code [--target <name> ...]
               swift package generate-hhsocket-code -- <path> ... --output <folder>

        ARGUMENTS:
          <path>                  .proto files, or folders of such; a target's folder without any.

        OPTIONS:
          --target <name>         A target whose folder has .proto files, or a configuration that lists some. The code is
                                  written into its folder. May be given more than once; without it and without paths, all
                                  targets with such files are meant.
          --output <folder>       Where the code is written.
          --import-path <folder>  Where imports are looked for, instead of what the configuration says. May be given more
                                  than once. `hhsocket/options.proto` is always found.
          --configuration <file>  The configuration, instead of the nearest hhsocket-generator-config.json beside or
                                  above the files.
          --verbose               Print how protoc is called.
          --help                  Print this.

        CONFIGURATION, of which each key may be left out:
          {
            "protoFiles": ["chat.proto"],  all below the configuration's folder
            "visibility": "Internal",      or "Package", "Public"
            "messages": "HHSocket",        or "SwiftProtobuf"
            "client": true,
            "server": true,
            "mocks": true,                 as "client" says
            "fileNaming": "FullPath",      or "PathToUnderscores", "DropPath"
            "modules": {                   the modules of imported files, or the path of a file
              "Common": ["common.proto"]   in swift-protobuf's format of mappings
            },
            "useAccessLevelOnImports": true,
            "serviceSuffix": "RPC",
            "importPaths": ["."],
            "protocPath": "/usr/bin/protoc"
          }

        protoc is the one that the environment variable PROTOC_PATH names, or "protocPath", or the first in PATH.
        """

    var targets: [String] = []
    var paths: [String] = []
    var output: String?
    var importPaths: [String] = []
    var configuration: String?
    var isVerbose = false
    var wantsHelp = false

    init(_ arguments: [String]) throws {
        var open = arguments[...]
        while let argument = open.popFirst() {
            // `--option=value` is `--option value`.
            let parts = argument.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            let name = parts.first ?? argument
            func value() throws -> String {
                if parts.count == 2 { return parts[1] }
                guard let value = open.popFirst() else { throw PluginError("\(name) needs a value; see --help.") }
                return value
            }
            switch name {
            case "--": continue
            case "--target": self.targets.append(try value())
            case "--output": self.output = try value()
            case "--import-path": self.importPaths.append(try value())
            case "--configuration": self.configuration = try value()
            case "--verbose": self.isVerbose = true
            case "--help", "-h": self.wantsHelp = true
            default:
                guard !argument.hasPrefix("-") else { throw PluginError("There is no option \(argument); see --help.") }
                self.paths.append(argument)
            }
        }
    }
}
