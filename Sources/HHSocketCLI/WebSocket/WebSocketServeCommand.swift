// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketServer

/// `hhsocket ws-serve`
struct WebSocketServeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "ws-serve",
        abstract: "Echo messages over WebSockets.",
        discussion: """
            Sends back every message, of at most 64 MiB. The first line of stdout is: listening on HOST:PORT. SIGINT and \
            SIGTERM close all connections with 1001.
            """
    )

    @Option(help: "The address to listen on.")
    var host = "127.0.0.1"

    @Option(help: "The port to listen on; 0 picks a free one.")
    var port = 7001

    @Option(help: .value("path", "The path of requests. (default: any)"))
    var path: String?

    @Option(help: .value("name", "Select this subprotocol if a client offers it. May be given several times."))
    var subprotocol: [String] = []

    @Flag(help: "Compress all messages for clients that ask for it (permessage-deflate).")
    var compress = false

    @OptionGroup var announcement: AnnounceOptions

    @OptionGroup(title: "TLS") var tls: ServerTLSOptions

    func validate() throws {
        try ListenAddress.validate(port: self.port)
        guard self.path?.hasPrefix("/") ?? true else { throw ValidationError("--path begins with /.") }
    }

    func run() async throws {
        let server = try Usage.checked { () throws(SocketError) in try self.server() }
        try await self.announcement.serve { () throws(SocketError) in
            try await server.start()
            let address = server.address.map { Endpoint(host: $0.host, port: $0.port) }
            return (server, address ?? Endpoint(host: self.host, port: self.port))
        } stop: { server in
            // Clients that do not answer are not waited for any longer.
            await server.shutdown(gracePeriod: .seconds(5))
        }
    }

    private func server() throws(SocketError) -> SocketServer {
        var listener = ServerListener(host: self.host, port: self.port, tls: self.tls.tls)
        listener.webSocket = WebSocketListening(path: nil)
        var configuration = SocketServer.Configuration(listeners: [listener])
        configuration.limits.maximumBufferedBytesPerConnection = 256 << 20
        let server = SocketServer(configuration: configuration, router: Router())
        var options = WebSocketRouteOptions()
        options.subprotocols = self.subprotocol
        options.compression = self.compress ? .all : nil
        options.maximumMessageLength = 64 << 20
        try server.webSocket(
            self.path,
            options: options,
            onMessage: { message, connection in
                connection.post(message)
            }
        )
        return server
    }
}
