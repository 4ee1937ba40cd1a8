import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// `protoc-gen-hhsocket`: protoc starts it for `--hhsocket_out`, writes descriptors to it and reads Swift files from
/// it.
@main struct Plugin: CodeGenerator {
    var supportedFeatures: [Google_Protobuf_Compiler_CodeGeneratorResponse.Feature] { [.proto3Optional] }
    var customOptionExtensions: [any AnyMessageExtension] { CustomOptions.all }

    func generate(
        files: [FileDescriptor],
        parameter: any CodeGeneratorParameter,
        protoCompilerContext: any ProtoCompilerContext,
        generatorOutputs: any GeneratorOutputs
    ) throws {
        let options = try GeneratorOptions(parameter.parsedPairs)
        var complaints = files.flatMap { SupportCheck(options: options, file: $0).complaints }
        let numbers = MessageTypeNumbers(files, required: options.client || options.server)
        complaints += numbers.complaints
        // Of names nothing is said as long as there may be none.
        if complaints.isEmpty {
            complaints = files.flatMap { NameCheck(Context(options: options, file: $0)).complaints }
        }
        guard complaints.isEmpty else { throw Complaints(complaints) }
        for file in files {
            let generator = FileGenerator(Context(options: options, file: file))
            try generatorOutputs.add(fileName: options.fileNaming.outputName(of: file.name), contents: generator.text)
        }
    }
}
