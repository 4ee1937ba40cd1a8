// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

// The plugins' own sources are compiled into these tests too, except those that import PackagePlugin, which a package's
// tests cannot. Tests/PluginFixture/test has SwiftPM run the plugins.

@Suite struct GeneratorConfigurationTests {
    private static func configuration(_ text: String) throws -> (GeneratorConfiguration, path: String) {
        let folder = try TemporaryFolder()
        let path = try folder.write(text, to: GeneratorConfiguration.fileName)
        return (try GeneratorConfiguration(contentsOf: URL(fileURLWithPath: path)), path)
    }

    @Test func omittedOptionsHaveTheGeneratorsDefaults() throws {
        let (configuration, _) = try Self.configuration("{}")
        #expect(configuration.generatorOptions == ["FileNaming=FullPath"])
        #expect(configuration.protoFiles == nil)
        #expect(configuration.importPaths == nil)
        #expect(configuration.protocPath == nil)
    }

    @Test func everyKeyCounts() throws {
        let (configuration, _) = try Self.configuration(
            """
            {"protoFiles": ["a.proto"], "visibility": "public", "messages": "SwiftProtobuf", "client": true, "server": false,
             "mocks": false, "fileNaming": "DropPath", "importPaths": ["..", "b"], "protocPath": "/opt/protoc",
             "modules": {"Other": ["c.proto"], "Common": ["a.proto", "b/b.proto"]}, "useAccessLevelOnImports": true,
             "serviceSuffix": "RPC"}
            """
        )
        #expect(
            configuration.generatorOptions == [
                "Visibility=Public", "Messages=SwiftProtobuf", "Client=true", "Server=false", "Mocks=false",
                "FileNaming=DropPath", "Module=Common:a.proto", "Module=Common:b/b.proto", "Module=Other:c.proto",
                "UseAccessLevelOnImports=true", "ServiceSuffix=RPC",
            ]
        )
        #expect(configuration.protoFiles == ["a.proto"])
        #expect(configuration.importPaths == ["..", "b"])
        #expect(configuration.protocPath == "/opt/protoc")
    }

    @Test(arguments: [
        (
            #"{"clients": true}"#,
            #"there is no key "clients"; there are protoFiles, visibility, messages, client, server, mocks, fileNaming, "#
                + "modules, useAccessLevelOnImports, serviceSuffix, importPaths, protocPath."
        ),
        (#"{"client": "no"}"#, #""client": must be true or false."#),
        (#"{"protocPath": 1}"#, #""protocPath": must be a string."#),
        (#"{"protoFiles": "a.proto"}"#, #""protoFiles": must be a list of strings."#),
        (#"{"protoFiles": ["a.proto", 1]}"#, #""protoFiles[1]": must be a string."#),
        (
            #"{"modules": {"Common": "common.proto"}}"#,
            #""modules": must be a path, or an object with a list of files for each module."#
        ),
        (#"["a"]"#, "must be an object."),
        (#"{"visibility": "Open"}"#, #""visibility": there is no "Open"; there are Public, Package, Internal."#),
    ])
    func faultsAreNamed(text: String, diagnostic: String) throws {
        let folder = try TemporaryFolder()
        let path = try folder.write(text, to: GeneratorConfiguration.fileName)
        let error = #expect(throws: PluginError.self) {
            try GeneratorConfiguration(contentsOf: URL(fileURLWithPath: path))
        }
        #expect(error?.description.hasPrefix("\(path): \(diagnostic)") == true, "\(error?.description ?? "")")
    }

    @Test func aFileOfMappingsIsRelativeToTheConfiguration() throws {
        let folder = try TemporaryFolder()
        let path = try folder.write(#"{"modules": "mappings.txtpb"}"#, to: GeneratorConfiguration.fileName)
        let settings = try GeneratorSettings(contentsOf: URL(fileURLWithPath: path))
        let generator = URL(fileURLWithPath: "/bin/generator")
        let arguments = try settings.arguments(for: ["a.proto"], generator: generator, output: generator)
        let mappings = URL(fileURLWithPath: folder.file("mappings.txtpb")).standardizedFileURL
        #expect(
            arguments.contains("--hhsocket_opt=FileNaming=FullPath,ProtoPathModuleMappings=\(mappings.path)"),
            "\(arguments)"
        )
        #expect(settings.moduleMappings == mappings)
    }

    /// The reason is the system's message.
    @Test func invalidJSONIsReported() throws {
        let error = #expect(throws: PluginError.self) { try Self.configuration(#"{"client": true"#) }
        #expect(error?.description.contains("JSON") == true, "\(error?.description ?? "")")
    }

    @Test func aMissingFileIsNamed() throws {
        let error = #expect(throws: PluginError.self) {
            try GeneratorConfiguration(contentsOf: URL(fileURLWithPath: "/nonexistent/a.json"))
        }
        #expect(error?.description.hasPrefix("/nonexistent/a.json: ") == true)
    }
}

@Suite struct CommandArgumentsTests {
    @Test func everyOptionHasItsValueInEitherForm() throws {
        let arguments = try CommandArguments([
            "--target", "Chat", "--target=Feed", "--output", "out", "--import-path=a=b", "--import-path", "c",
            "--configuration", "x.json", "--verbose", "--", "a.proto", "folder",
        ])
        #expect(arguments.targets == ["Chat", "Feed"])
        #expect(arguments.output == "out")
        #expect(arguments.importPaths == ["a=b", "c"])
        #expect(arguments.configuration == "x.json")
        #expect(arguments.isVerbose)
        #expect(!arguments.wantsHelp)
        #expect(arguments.paths == ["a.proto", "folder"])
    }

    @Test(arguments: [
        (["--outptu", "x"], "There is no option --outptu; see --help."),
        (["-x"], "There is no option -x; see --help."),
        (["a.proto", "--output"], "--output needs a value; see --help."),
    ])
    func wrongUsageIsExplained(arguments: [String], diagnostic: String) {
        let error = #expect(throws: PluginError.self) { try CommandArguments(arguments) }
        #expect(error?.description == diagnostic)
    }
}

@Suite struct PluginProtocTests {
    private static func settings(_ configuration: String) throws -> (GeneratorSettings, folder: TemporaryFolder) {
        let folder = try TemporaryFolder()
        let path = try folder.write(configuration, to: GeneratorConfiguration.fileName)
        return (try GeneratorSettings(contentsOf: URL(fileURLWithPath: path)), folder)
    }

    @Test func environmentIsBeforeConfigurationIsBeforePath() throws {
        let (settings, folder) = try Self.settings(#"{"protocPath": "configured"}"#)
        for name in ["configured", "named", "protoc"] {
            let path = try folder.write("#!/bin/sh\n", to: name)
            try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: path)
        }
        let path = ["PATH": "/nonexistent:\(folder.path)"]
        let named = try Protoc.find(settings, in: path.merging(["PROTOC_PATH": folder.file("named")]) { $1 })
        #expect(named.path == folder.file("named"))
        #expect(try Protoc.find(settings, in: path).path == folder.file("configured"))
        let plain = GeneratorSettings(folder: URL(fileURLWithPath: folder.path))
        #expect(try Protoc.find(plain, in: path).path == folder.file("protoc"))
    }

    @Test func missingNamedProtocIsReported() throws {
        let (settings, folder) = try Self.settings(#"{"protocPath": "missing"}"#)
        let byVariable = #expect(throws: PluginError.self) {
            try Protoc.find(settings, in: ["PROTOC_PATH": "/nonexistent"])
        }
        let environment = "The environment variable PROTOC_PATH names /nonexistent, where there is no protoc. "
        #expect(byVariable?.description.hasPrefix(environment) == true)
        let byConfiguration = #expect(throws: PluginError.self) { try Protoc.find(settings, in: [:]) }
        #expect(
            byConfiguration?.description.contains("names \(folder.file("missing")), where there is no protoc") == true
        )
        for error in [byVariable, byConfiguration] {
            #expect(error?.description.contains("`apt install protobuf-compiler libprotobuf-dev`") == true)
        }
    }
}

@Suite struct ProtoFinderTests {
    /// Creates a package of files, by their paths, while `body` runs.
    private static func withPackage(_ files: [String: String], _ body: (URL) throws -> Void) throws {
        let folder = try TemporaryFolder()
        let url = URL(fileURLWithPath: folder.path, isDirectory: true)
        for (path, text) in files {
            let file = url.appendingPathComponent(path)
            try FileManager.default.createDirectory(
                at: file.deletingLastPathComponent(),
                withIntermediateDirectories: true
            )
            try Data(text.utf8).write(to: file)
        }
        try withExtendedLifetime(folder) { try body(url.standardizedFileURL) }
    }

    private static func found(_ batches: [ProtoBatch], in package: URL) -> [[String]] {
        batches.map { $0.protos.map { $0.path(below: package) ?? $0.path }.sorted() }
    }

    @Test func withoutConfigurationAllBelowBelong() throws {
        try Self.withPackage([
            "Sources/A/a.proto": "", "Sources/A/b/c.proto": "", "Sources/A/d.swift": "", "Sources/B/e.proto": "",
        ]) { package in
            let batches = try ProtoFinder.batches(in: package.appendingPathComponent("Sources/A"), package: package)
            #expect(Self.found(batches, in: package) == [["Sources/A/a.proto", "Sources/A/b/c.proto"]])
            #expect(batches.first?.settings.importPaths.map(\.path) == [package.path + "/Sources/A"])
            #expect(
                try batches.first?.settings.name(of: package.appendingPathComponent("Sources/A/b/c.proto"))
                    == "b/c.proto"
            )
        }
    }

    @Test func aFileGoesByTheNearestConfiguration() throws {
        let name = GeneratorConfiguration.fileName
        try Self.withPackage([
            name: #"{"server": false}"#, "Sources/A/a.proto": "",
            "Sources/A/b/\(name)": #"{"client": false}"#, "Sources/A/b/c.proto": "",
        ]) { package in
            let batches = try ProtoFinder.batches(in: package.appendingPathComponent("Sources/A"), package: package)
            #expect(Self.found(batches, in: package) == [["Sources/A/b/c.proto"], ["Sources/A/a.proto"]])
            #expect(batches.map(\.settings.configuration.client) == [false, nil])
            #expect(batches.map(\.settings.configuration.server) == [nil, false])
        }
    }

    @Test func aConfigurationMayListFilesOfElsewhereWhichMustExist() throws {
        let file = "Sources/A/\(GeneratorConfiguration.fileName)"
        try Self.withPackage([
            "Protos/x.proto": "", "Sources/A/a.proto": "",
            file: #"{"protoFiles": ["../../Protos/x.proto"], "importPaths": ["../../Protos"]}"#,
        ]) { package in
            let target = package.appendingPathComponent("Sources/A")
            let batches = try ProtoFinder.batches(in: target, package: package)
            #expect(Self.found(batches, in: package) == [["Protos/x.proto"]])
            try Data(#"{"protoFiles": ["y.proto"]}"#.utf8).write(to: package.appendingPathComponent(file))
            let error = #expect(throws: PluginError.self) { try ProtoFinder.batches(in: target, package: package) }
            #expect(error?.description.contains(#""protoFiles": there is no file"#) == true)
        }
    }

    @Test func aFileOutsideOfAllImportPathsIsRefused() throws {
        try Self.withPackage(["Protos/x.proto": "", "Sources/A/a.proto": ""]) { package in
            let settings = GeneratorSettings(folder: package.appendingPathComponent("Sources/A"))
            let error = #expect(throws: PluginError.self) {
                try settings.name(of: package.appendingPathComponent("Protos/x.proto"))
            }
            #expect(error?.description.contains("is in none of the import paths") == true)
        }
    }

    @Test func importsAreFollowed() throws {
        try Self.withPackage([
            "a.proto": #"syntax = "proto3"; import "b.proto"; import public 'c/d.proto';"#,
            "b.proto": #"import "a.proto"; import "nowhere.proto";"#,
            "c/d.proto": #"import weak "e.proto";"#,
            "e.proto": "",
        ]) { package in
            let found = ProtoFinder.imports(of: package.appendingPathComponent("a.proto"), in: [package])
            #expect(found.compactMap { $0.path(below: package) }.sorted() == ["b.proto", "c/d.proto", "e.proto"])
        }
    }
}

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct GenerateCommandTests {
    private static let fixture = packageFolder.appendingPathComponent("Tests/PluginFixture")

    private static func command(_ arguments: [String] = []) throws -> GenerateCommand {
        GenerateCommand(
            arguments: try CommandArguments(arguments),
            package: self.fixture,
            generator: Command.executable("protoc-gen-hhsocket")
        )
    }

    @Test(
        .enabled(
            if: Command.installed("protoc") != nil,
            "There is no protoc: generating for paths is NOT TESTED here. Install the package protobuf-compiler."
        ),
        arguments: ["Protos/notes.proto", "Protos"]
    )
    func pathsAreGeneratedFor(path: String) throws {
        let output = try TemporaryFolder()
        let proto = Self.fixture.appendingPathComponent(path).path
        try Self.command().generate(for: [proto], into: URL(fileURLWithPath: output.path))
        let text = try String(contentsOfFile: output.file("notes.hhsocket.swift"), encoding: .utf8)
        #expect(text.contains("\nstruct Notes_Note"))
    }

    @Test(arguments: [
        ("Protos/missing.proto", "There is no file "), ("Package.swift", "is not a .proto file."),
        ("Sources/Paths", "There is no .proto file in "),
    ])
    func unusableInputsAreNamed(path: String, diagnostic: String) throws {
        let folder = try TemporaryFolder()
        let package = URL(fileURLWithPath: folder.path)
        let empty = package.appendingPathComponent("Sources/Paths")
        try FileManager.default.createDirectory(at: empty, withIntermediateDirectories: true)
        _ = try folder.write("", to: "Package.swift")
        var command = try Self.command()
        command.package = package
        let error = #expect(throws: PluginError.self) {
            try command.generate(for: [folder.file(path)], into: package)
        }
        #expect(error?.description.contains(diagnostic) == true, "\(error?.description ?? "")")
    }
}
