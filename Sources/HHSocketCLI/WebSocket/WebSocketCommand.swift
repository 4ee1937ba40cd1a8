// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import Foundation
import HHSocket

/// `hhsocket ws`
struct WebSocketCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "ws",
        abstract: "Send and receive messages over a WebSocket.",
        discussion: """
            Sends the messages given by --send and --send-file, or else each line of standard input as a text message. \
            Prints each received message on a line of stdout: text unchanged, binary in Base64.

            It ends when everything was sent and, without --send and --send-file, standard input has ended; or, with \
            --count, after that many messages. It reconnects when the connection is lost or refused, unless --once is given. \
            SIGINT and SIGTERM close with 1000. A close by the server is reported on stderr as: closed: CODE REASON.
            """
    )

    @Argument(help: .value("url", "The server: ws://HOST[:PORT]/PATH, or wss://… for TLS."))
    var url: String

    @Option(help: .value("text", "Send this text. May be given several times."))
    var send: [String] = []

    @Option(help: .value("file", "Send this file as one binary message; - is stdin."))
    var sendFile: String?

    @Flag(help: "Send back each message that arrives, instead of printing it.")
    var echo = false

    @Option(help: .value("name:value", "A header field of the opening request. May be given several times."))
    var header: [HeaderOption] = []

    @Option(help: .value("name", "Offer this subprotocol. May be given several times."))
    var subprotocol: [String] = []

    @Flag(help: "Offer to compress messages (permessage-deflate), and compress all if the server agrees.")
    var compress = false

    @Option(
        help: .value("seconds", "The silence after which the server is pinged; 0 is never. (default: 60)"),
        transform: DurationArgument.parseOrZero
    )
    var ping = Duration.seconds(60)

    @Option(number: "End after this many messages, printed or sent back.")
    var count: Int?

    @Option(seconds: "The time for connecting, TLS and opening of one attempt. (default: 10)")
    var timeout = Duration.seconds(10)

    @Flag(help: "Make one attempt and one connection.")
    var once = false

    @Flag(help: "Print messages as JSON: {\"kind\":\"text\",\"text\":…} or {\"kind\":\"binary\",\"base64\":…}.")
    var json = false

    @OptionGroup var route: RouteOptions

    func validate() throws {
        guard self.count.map({ $0 > 0 }) ?? true else { throw ValidationError("--count is 1 or more.") }
        _ = try Usage.checked { () throws(SocketError) in try self.configuration() }
    }

    func run() async throws {
        let signals = Signals()
        let configuration = try Usage.checked { () throws(SocketError) in try self.configuration() }
        let file = try self.sendFile.map {
            try Input.content(of: $0, limit: configuration.maximumMessageLength)
        }
        let exchange = MessageExchange<WebSocketLink>(
            .init(isOnce: self.once, count: self.count, echoes: self.echo, printsJSON: self.json)
        )
        let code = try await exchange.run(
            self.send.isEmpty && file == nil
                ? .standardInput
                : .messages(
                    self.send.map { WebSocketMessage($0) } + (file.map { [WebSocketMessage(.binary, $0)] } ?? [])
                ),
            on: WebSocketLink(configuration: configuration),
            signals.stream
        )
        if code != 0 { throw ExitCode(code) }
    }

    private func configuration() throws(SocketError) -> WebSocketLink.Configuration {
        var configuration = try WebSocketLink.Configuration(url: self.url)
        self.route.apply(to: &configuration.socket)
        configuration.socket.connectTimeout = self.timeout
        configuration.socket.heartbeat = self.ping == .zero ? nil : HeartbeatPolicy(interval: self.ping)
        configuration.socket.webSocket.headers = self.header.map { (name: $0.name, value: $0.value) }
        configuration.subprotocols = self.subprotocol
        configuration.compression = self.compress ? .all : nil
        configuration.maximumMessageLength = 64 << 20
        configuration.socket.maximumQueuedBytes = 256 << 20
        if self.once { configuration.socket.backoff.maximumRounds = 1 }
        return configuration
    }
}

extension WebSocketCompression {
    /// The compression of all messages, which shows that the other side can cope with it.
    static var all: WebSocketCompression {
        var compression = WebSocketCompression()
        compression.minimumLength = 0
        return compression
    }
}

/// `NAME:VALUE`
struct HeaderOption: ExpressibleByArgument, Sendable {
    var name: String
    var value: String

    init?(argument: String) {
        guard let (name, value) = argument.nameAndValue else { return nil }
        self.name = String(name)
        self.value = value.trimmingCharacters(in: .whitespaces)
    }
}
