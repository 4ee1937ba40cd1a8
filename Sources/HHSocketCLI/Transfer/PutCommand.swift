// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketRPC

struct PutCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "put",
        abstract: "Put a file into a server's store.",
        discussion: """
            Prints the file's id in the store, and nothing else, on stdout. If the command is run again after it was \
            interrupted, it resumes: the part that the server has already is not sent again. `changed` on stderr means that \
            the server had other unfinished content under this id, and has discarded it.

            The file is read twice: for its SHA-256, and to be sent; with an id, both at the same time if it is large. A file \
            that changes meanwhile is an error.

            If the connection is lost or the server cannot be reached, the command tries again until there was no progress \
            for --timeout. All other errors are reported immediately on stderr as `error: CODE: message`; the exit code \
            is 1.
            """
    )

    @Argument(help: "The file, which must be a regular file.")
    var file: String

    @Argument(help: ServerAddresses.help)
    var servers: ServerAddresses

    @Option(
        parsing: .unconditional,
        help: .value(
            "id",
            "The file's name in the store: \(TransferIDArgument.form). (default: the SHA-256 of its content)"
        )
    )
    var id: TransferIDArgument?

    @OptionGroup var options: TransferOptions

    @OptionGroup var connection: ConnectionOptions

    @OptionGroup var route: RouteOptions

    func run() async throws {
        if self.file == "-" {
            StandardError.line("error: fileFailed: Standard input cannot be read twice; ./- is a file")
            throw ExitCode.failure
        }
        let result = try await self.options.run(
            "put \(self.file)",
            to: self.servers,
            by: self.route,
            over: self.connection
        ) {
            $0.put(self.file, id: self.id?.id)
        }
        guard let result else { throw ExitCode.failure }
        try StandardOutput.write("\(result.id)\n")
    }
}
