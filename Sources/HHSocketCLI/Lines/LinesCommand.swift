// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import NIOCore

/// `hhsocket lines`
struct LinesCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "lines",
        abstract: "Send and receive lines over TCP or TLS.",
        discussion: """
            Sends the lines given by --send, or else each line of standard input. Prints each received line on a line of \
            stdout; one that is not UTF-8 is reported on stderr and does not count.

            It ends when everything was sent and, without --send, standard input has ended; or, with --count, after that \
            many lines. It reconnects when the connection is lost or refused, unless --once is given: then either is an \
            error. SIGINT and SIGTERM end it.
            """
    )

    @Argument(help: .value("address", "The server: HOST:PORT, or tls://HOST:PORT for TLS."))
    var address: String

    @Option(help: DelimiterArgument.help, transform: DelimiterArgument.parse)
    var delimiter = LineDelimiter.lf

    @Option(help: .value("text", "Send this line. May be given several times."))
    var send: [String] = []

    @Option(
        parsing: .unconditional,
        help: .value(
            "text",
            "Send this line immediately, and whenever nothing was sent for --heartbeat-every. No answer is expected."
        )
    )
    var heartbeat: String?

    @Option(seconds: "The silence after which --heartbeat is sent. (default: 60)")
    var heartbeatEvery = Duration.seconds(60)

    @Option(number: "End after this many lines.")
    var count: Int?

    @Flag(help: "Make one attempt and one connection.")
    var once = false

    @Flag(help: "Print lines as JSON: {\"kind\":\"text\",\"text\":…}.")
    var json = false

    @OptionGroup var route: RouteOptions

    func validate() throws {
        guard self.count.map({ $0 > 0 }) ?? true else { throw ValidationError("--count is 1 or more.") }
        _ = try Usage.checked { () throws(SocketError) in try self.configuration() }
    }

    func run() async throws {
        let signals = Signals()
        let configuration = try Usage.checked { () throws(SocketError) in try self.configuration() }
        let exchange = MessageExchange<LineLink>(
            .init(isOnce: self.once, count: self.count, printsJSON: self.json)
        )
        let code = try await exchange.run(
            self.send.isEmpty ? .standardInput : .messages(self.send.map { ByteBuffer(string: $0) }),
            on: LineLink(configuration: configuration),
            signals.stream
        )
        if code != 0 { throw ExitCode(code) }
    }

    private func configuration() throws(SocketError) -> LineLink.Configuration {
        var configuration = try LineLink.Configuration(address: self.address)
        self.route.apply(to: &configuration.socket)
        configuration.socket.heartbeat = HeartbeatPolicy(interval: self.heartbeatEvery)
        configuration.socket.maximumQueuedBytes = 256 << 20
        configuration.delimiter = self.delimiter
        if let heartbeat = self.heartbeat { configuration.heartbeatLine = { heartbeat } }
        if self.once { configuration.socket.backoff.maximumRounds = 1 }
        return configuration
    }
}
