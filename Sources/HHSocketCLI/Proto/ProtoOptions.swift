// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import Foundation
import NIOCore
import SwiftProtobuf

/// The `.proto` that declares methods and messages.
struct ProtoOptions: ParsableArguments {
    @Option(
        help: .value(
            "file",
            """
            The .proto that declares methods and messages, which protoc reads; or a descriptor set, such as \
            protoc and buf write, which needs no protoc.
            """
        )
    )
    var proto: String?

    @Option(
        name: [.customShort("I", allowingJoined: true), .long],
        help: .value(
            "folder",
            """
            A folder in which protoc looks for imports. May be given several times. (default: the file's folder and the \
            current one)
            """
        )
    )
    var protoPath: [String] = []

    func validate() throws {
        try require(self.proto != nil || self.protoPath.isEmpty, "--proto-path requires --proto.")
    }

    /// Reads the declarations of the file; nil if none is given. Errors are reported on stderr.
    func schema() throws -> ProtoSchema? {
        guard let file = self.proto else { return nil }
        do throws(ProtoError) {
            let given = try Self.descriptorSet(in: file)
            let descriptors =
                if let given { given } else { try Protoc.descriptorSet(of: file, paths: self.protoPath) }
            do throws(ProtoError) {
                return try SchemaBuilder.schema(of: descriptors, onlyLast: given == nil)
            } catch {
                throw ProtoError("Cannot use \(file): \(error.description).")
            }
        } catch {
            StandardError.line("error: \(error.description)")
            throw ExitCode.failure
        }
    }

    /// Returns the descriptor set that a file consists of; nil for a file that protoc must read.
    private static func descriptorSet(in file: String) throws(ProtoError) -> Data? {
        let input: Input
        do throws(Input.Failure) {
            input = try Input.open(path: file)
        } catch {
            // protoc also searches for the file in its folders.
            guard DescriptorSet.isNamed(file) else { return nil }
            throw ProtoError("\(error).")
        }
        do throws(Input.Failure) {
            let bytes = Data(try input.rest(limit: DescriptorSet.longest).readableBytesView)
            if DescriptorSet.isNamed(file) || DescriptorSet.isContent(bytes) { return bytes }
            // protoc opens the file again by its name.
            guard input.kind == .regularFile else {
                throw Input.Failure(file, "it is not a regular file, as a .proto must be, nor a descriptor set")
            }
            return nil
        } catch {
            throw ProtoError("\(error).")
        }
    }
}

/// Recognizes files with a `google.protobuf.FileDescriptorSet`.
enum DescriptorSet {
    /// The length of the longest file that is read, in bytes. Those of the largest public collections have a tenth.
    static let longest = 256 << 20

    private static let suffixes = [".pb", ".protoset", ".desc", ".binpb", ".fds"]

    /// Whether a file of this name should be a descriptor set, even if its content is none.
    static func isNamed(_ name: String) -> Bool {
        self.suffixes.contains { name.lowercased().hasSuffix($0) }
    }

    /// Whether bytes are a descriptor set: one or more files, and nothing else. No text is, although a newline is the
    /// same byte as the key of a file.
    static func isContent(_ bytes: Data) -> Bool {
        guard let set = try? Google_Protobuf_FileDescriptorSet(serializedBytes: bytes) else { return false }
        return !set.file.isEmpty && set.unknownFields.data.isEmpty
    }
}
