// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// The plugin `protoc-gen-hhsocket`, which protoc starts for `--hhsocket_out`: it reads descriptors and writes Swift
/// files.
@main struct Plugin: CodeGenerator {
    var supportedFeatures: [Google_Protobuf_Compiler_CodeGeneratorResponse.Feature] {
        [.proto3Optional, .supportsEditions]
    }
    var supportedEditionRange: ClosedRange<Google_Protobuf_Edition> { DescriptorSet.bundledEditionsSupport }
    var customOptionExtensions: [any AnyMessageExtension] { CustomOptions.all }

    func generate(
        files: [FileDescriptor],
        parameter: any CodeGeneratorParameter,
        protoCompilerContext: any ProtoCompilerContext,
        generatorOutputs: any GeneratorOutputs
    ) throws {
        let options = try GeneratorOptions(parameter.parsedPairs)
        var diagnostics = files.flatMap { SupportCheck(options: options, file: $0).diagnostics }
        let numbers = MessageTypeNumbers(files, required: options.client || options.server)
        diagnostics += numbers.diagnostics
        // Names are checked only if everything else is valid, because some may not exist otherwise.
        if diagnostics.isEmpty {
            diagnostics = files.flatMap { NameCheck(Context(options: options, file: $0)).diagnostics }
            diagnostics += ModuleNameCheck(files, options).diagnostics
            diagnostics += ExtensionNameCheck(files, options).diagnostics
        }
        guard diagnostics.isEmpty else { throw Diagnostics(diagnostics) }
        for file in files {
            let generator = FileGenerator(Context(options: options, file: file))
            try generatorOutputs.add(fileName: options.fileNaming.outputName(of: file.name), contents: generator.text)
        }
    }
}
