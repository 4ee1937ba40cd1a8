// SPDX-License-Identifier: Apache-2.0
import Foundation

/// The system's `protoc`, which parses `.proto` files.
enum Protoc {
    /// Returns the descriptor set of a file and its imports. protoc reports errors on stderr.
    ///
    /// - Parameter paths: The import paths; if there are none, the file's folder and the current one.
    static func descriptorSet(of file: String, paths: [String]) throws(ProtoError) -> Data {
        let protoc = try Self.find(in: ProcessInfo.processInfo.environment)
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("hhsocket-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: folder) }
        let output = folder.appendingPathComponent("descriptors.pb")
        do {
            try OptionsProto.write(to: folder)
        } catch {
            throw ProtoError("Cannot write to \(folder.path): \(error.localizedDescription)")
        }
        let given = paths.isEmpty ? [(file as NSString).deletingLastPathComponent, "."] : paths
        let folders = (given + [folder.path]).map { $0.isEmpty ? "." : $0 }
        var command = [protoc, "--descriptor_set_out=\(output.path)", "--include_imports", "--include_source_info"]
        command += folders.map { "-I\($0)" }
        // A name that begins with a dash would be read as an option.
        command.append(file.hasPrefix("-") ? "./\(file)" : file)
        let child: ChildProcess
        do throws(ChildProcess.CannotStart) {
            child = try ChildProcess(command)
        } catch {
            throw ProtoError("Cannot start \(protoc): \(String(cString: strerror(error.errno))).")
        }
        guard child.waitForEnd() == 0, let descriptors = try? Data(contentsOf: output) else {
            throw ProtoError("protoc could not read \(file).")
        }
        return descriptors
    }

    /// Returns the path of the program named by PROTOC_PATH, or of the first in PATH.
    static func find(in environment: [String: String]) throws(ProtoError) -> String {
        if let path = ProtocSearch.namedPath(in: environment) {
            guard FileManager.default.isExecutableFile(atPath: path) else {
                throw ProtoError(
                    "The environment variable \(ProtocSearch.variable) names \(path), where there is no protoc."
                )
            }
            return path
        }
        guard let path = ProtocSearch.firstPath(in: environment) else {
            throw ProtoError(
                "protoc, which reads .proto files, is not in PATH; install it (apt install protobuf-compiler, "
                    + "brew install protobuf), say where it is in \(ProtocSearch.variable), or give a "
                    + "descriptor set that it has "
                    + "written elsewhere."
            )
        }
        return path
    }
}
