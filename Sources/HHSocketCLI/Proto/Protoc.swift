// SPDX-License-Identifier: Apache-2.0
import Foundation
import NIOCore

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
        command = ["/bin/sh", "-c", Self.guardian, "sh", folder.path] + command
        let child: ChildProcess
        do throws(ChildProcess.CannotStart) {
            child = try ChildProcess(command)
        } catch {
            throw ProtoError("Cannot start \(protoc): \(String(cString: strerror(error.errno))).")
        }
        // The folder is removed when the child's standard input ends.
        defer { withExtendedLifetime(child) {} }
        guard child.waitForEnd() == 0 else { throw ProtoError("protoc could not read \(file).") }
        do throws(Input.Failure) {
            let descriptors = try Input.open(path: output.path).rest(limit: DescriptorSet.longest)
            return Data(descriptors.readableBytesView)
        } catch {
            throw ProtoError("\(error).")
        }
    }

    /// A script that becomes the program of its arguments after the first, a folder. If standard input ends before the
    /// program does, because this process was killed, a second process ends the program and removes the folder.
    ///
    /// The second process ignores SIGTERM, which it sends to its process group: that has only the two, so this cannot
    /// hit another process that has got the number of one.
    private static let guardian = """
        folder=$1
        shift
        exec 3<&0 </dev/null
        {
            trap '' TERM
            read -r _ <&3
            kill -TERM 0
            rm -rf "$folder"
        } >/dev/null 2>&1 &
        exec 3<&-
        exec "$@"
        """

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
