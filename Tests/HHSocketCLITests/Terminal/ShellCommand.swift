// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport

/// `hhsocket` as a shell starts it, with redirections and the like.
enum ShellCommand {
    private static let shell = URL(fileURLWithPath: "/bin/sh")

    /// Starts a script of sh in which `$hh` is the command, and `$1` the first of `arguments`.
    static func start(
        _ script: String,
        _ arguments: [String] = [],
        input: Data = Data(),
        keepsInputOpen: Bool = false
    ) throws -> Command {
        let command = ["-c", "hh=$0\n\(script)", Command.hhsocket.path] + arguments
        return try Command(command, of: Self.shell, input: input, keepsInputOpen: keepsInputOpen)
    }

    /// Runs a script to its end.
    static func run(
        _ script: String,
        _ arguments: [String] = [],
        input: Data = Data(),
        fileID: String = #fileID,
        line: Int = #line
    ) async throws -> Command.Outcome {
        try await Self.start(script, arguments, input: input).outcome(fileID: fileID, line: line)
    }
}
