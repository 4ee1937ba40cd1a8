// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketRPC
import HHSocketSystem

struct GetCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "get",
        abstract: "Get a file from a server's store.",
        discussion: """
            Until it is complete, the content is kept beside FILE under a hidden name. If the command is run again after an \
            interruption, it resumes; if the store has another file by then, it starts over, and prints `changed` on \
            stderr. An existing FILE stays until the new one replaces it. Its folder must exist.

            With - as FILE the content goes to stdout as it arrives. It is complete only if the exit code is 0; if the \
            store's file is replaced meanwhile, and the connection lost, the command fails.

            If the connection is lost or the server cannot be reached, the command tries again until there was no progress \
            for --timeout. All other errors are reported immediately on stderr as `error: CODE: message`; the exit code \
            is 1.
            """
    )

    @Argument(help: ServerAddresses.help)
    var servers: ServerAddresses

    @Argument(help: .value("id", "The file's name in the store: \(TransferIDArgument.form)."))
    var id: TransferIDArgument

    @Argument(help: .value("file", "The file to write; - is stdout. (default: the id, in the current folder)"))
    var file: String?

    @OptionGroup var options: TransferOptions

    @OptionGroup var connection: ConnectionOptions

    @OptionGroup var route: RouteOptions

    func run() async throws {
        let id = self.id.id
        let isOutput = self.file == "-"
        // An id may be a dash, and is a file then.
        let path = self.file ?? "./\(id)"
        let result = try await self.options.run(
            "get \(id)",
            to: self.servers,
            by: self.route,
            over: self.connection,
            outlastsSignals: !isOutput
        ) {
            isOutput ? $0.get(id, toDescriptor: STDOUT_FILENO) : $0.get(id, to: path)
        }
        guard result != nil else { throw ExitCode.failure }
    }
}
