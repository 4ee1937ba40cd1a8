// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket

/// `hhsocket lines-serve`
struct LinesServeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "lines-serve",
        abstract: "Echo lines over TCP.",
        discussion: """
            Sends back every line, of at most 1 MiB, with its original end; a longer one ends the connection. The first \
            line of stdout is: listening on HOST:PORT. SIGINT and SIGTERM close all connections.
            """
    )

    @Option(help: "The address to listen on.")
    var host = "127.0.0.1"

    @Option(help: "The port to listen on; 0 picks a free one.")
    var port = 7002

    @Option(help: DelimiterArgument.help, transform: DelimiterArgument.parse)
    var delimiter = LineDelimiter.lf

    @OptionGroup var announcement: AnnounceOptions

    func validate() throws {
        try ListenAddress.validate(port: self.port)
    }

    func run() async throws {
        try await self.announcement.serve { () throws(SocketError) in
            let server = LineEchoServer(delimiter: self.delimiter)
            return (server, try await server.start(Endpoint(host: self.host, port: self.port)))
        } stop: { server in
            await server.shutdown()
        }
    }
}
