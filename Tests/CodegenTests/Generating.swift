// SPDX-License-Identifier: Apache-2.0
import Foundation
import SwiftProtobuf
import SwiftProtobufPluginLibrary
import Testing

@testable import protoc_gen_hhsocket

/// Runs the generator like protoc, with the committed descriptors of `Protos`.
enum Generating {
    static let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent()

    /// - Parameter files: The files to generate code for, such as `hello.proto`.
    static func respond(
        _ files: [String],
        _ options: String = "",
        changing change: (inout Google_Protobuf_FileDescriptorProto) -> Void = { _ in }
    ) throws -> Google_Protobuf_Compiler_CodeGeneratorResponse {
        var extensions = SimpleExtensionMap()
        extensions.insert(contentsOf: Plugin().customOptionExtensions)
        let sets = ["edition.proto": "editions", "edition2024.proto": "edition2024"]
        let name = files.first.flatMap { sets[$0] } ?? "protos"
        let bytes = try Data(contentsOf: self.folder.appendingPathComponent("DescriptorSets/\(name).pb"))
        let set = try Google_Protobuf_FileDescriptorSet(serializedBytes: bytes, extensions: extensions)
        let request = Google_Protobuf_Compiler_CodeGeneratorRequest.with { request in
            request.protoFile = set.file
            for index in request.protoFile.indices where files.contains(request.protoFile[index].name) {
                change(&request.protoFile[index])
            }
            request.fileToGenerate = files
            request.parameter = options
        }
        return generateCode(request: request, generator: Plugin())
    }

    /// The text of the only file.
    static func text(_ file: String, _ options: String = "") throws -> String {
        let response = try Self.respond([file], options)
        try #require(response.error.isEmpty, "\(response.error)")
        return try #require(response.file.first).content
    }

    /// The lines of the diagnostics.
    static func diagnostics(_ files: String..., options: String = "") throws -> [String] {
        let response = try Self.respond(files, options)
        #expect(response.file.isEmpty)
        return response.error.split(separator: "\n").map(String.init)
    }

    /// A declaration of a text: from the line that begins with `beginning` to the end of its braces, without its
    /// indentation.
    static func declaration(_ beginning: String, in text: String) throws -> String {
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        let start = try #require(
            lines.firstIndex { $0.drop(while: \.isWhitespace).hasPrefix(beginning) },
            "there is no \(beginning) in:\n\(text)"
        )
        let indentation = String(lines[start].prefix(while: \.isWhitespace))
        let end = lines[start...].firstIndex { $0 == "\(indentation)}" || $0 == "\(indentation)])" } ?? start
        return lines[start...end].map { $0.dropFirst(indentation.count) }.joined(separator: "\n")
    }
}
