// SPDX-License-Identifier: Apache-2.0
// Files between a small server and its clients, which may lose their connection at any time.
//
//     swift run files-example serve FOLDER 7200
//     swift run files-example 127.0.0.1 7200 put photo.jpg [ID]
//     swift run files-example 127.0.0.1 7200 get ID copy.jpg
//     swift run files-example 127.0.0.1 7200 find ID
//
// An interrupted put or get resumes when it is run again.
import Foundation
import HHSocketRPC
import HHSocketServer

/// Prints a line and flushes the output.
func tell(_ line: String) {
    FileHandle.standardOutput.write(Data("\(line)\n".utf8))
}

let arguments = CommandLine.arguments.dropFirst().map { String($0) }
do {
    switch (arguments.count, arguments.first) {
    case (3, "serve"):
        let server = try await FileServer(folder: arguments[1]).open(port: Int(arguments[2]) ?? 0)
        tell("the files of \(arguments[1]) are open on \(server.address?.description ?? "?")")
        try await Task.sleep(for: .seconds(1_000_000_000))
    case (4..., let host?):
        let visitor = FileVisitor(of: Endpoint(host: host, port: Int(arguments[1]) ?? 0))
        try await visitor.run(arguments[2], Array(arguments[3...]))
        await visitor.close()
    default:
        tell("usage: files-example serve FOLDER PORT, or files-example HOST PORT put FILE [ID] | get ID FILE | find ID")
        exit(64)
    }
} catch {
    FileHandle.standardError.write(Data("error: \(error)\n".utf8))
    exit(1)
}
