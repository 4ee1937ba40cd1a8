// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import Foundation

/// The `.proto` that declares methods and messages.
struct ProtoOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            """
            The .proto that declares methods and messages, which protoc reads; or a descriptor set, a file that ends in \
            .pb, .protoset or .desc, which needs no protoc.
            """,
            valueName: "file"
        )
    )
    var proto: String?

    @Option(
        name: [.customShort("I", allowingJoined: true), .long],
        help: ArgumentHelp(
            """
            A folder in which protoc looks for imports. May be given several times. (default: the file's folder and the \
            current one)
            """,
            valueName: "folder"
        )
    )
    var protoPath: [String] = []

    func validate() throws {
        guard self.proto != nil || self.protoPath.isEmpty else {
            throw ValidationError("--proto-path requires --proto.")
        }
    }

    /// Reads the declarations of the file; nil if none is given. Errors are reported on stderr.
    func schema() throws -> ProtoSchema? {
        guard let file = self.proto else { return nil }
        let isDescriptorSet = [".pb", ".protoset", ".desc"].contains { file.lowercased().hasSuffix($0) }
        do throws(ProtoError) {
            let descriptors =
                isDescriptorSet ? try Self.read(file) : try Protoc.descriptorSet(of: file, paths: self.protoPath)
            do throws(ProtoError) {
                return try SchemaBuilder.schema(of: descriptors, onlyLast: !isDescriptorSet)
            } catch {
                throw ProtoError("Cannot use \(file): \(error.description).")
            }
        } catch {
            StandardError.line("error: \(error.description)")
            throw ExitCode.failure
        }
    }

    private static func read(_ file: String) throws(ProtoError) -> Data {
        do {
            return try Data(contentsOf: URL(fileURLWithPath: file))
        } catch {
            throw ProtoError("Cannot read \(file): \(error.localizedDescription)")
        }
    }
}
