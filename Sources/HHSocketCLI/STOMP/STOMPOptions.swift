// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketSTOMP

/// The options of both `stomp` commands.
struct STOMPOptions: ParsableArguments {
    @Argument(
        help: .value(
            "url",
            "The broker: stomp://HOST[:PORT], stomps:// for TLS, or the ws:// or wss:// URL of a WebSocket."
        )
    )
    var url: String

    @Argument(help: .value("destination", "Where messages go or come from, such as /queue/orders."))
    var destination: String

    @Option(help: .value("user", "The user of the broker."))
    var login: String?

    @Option(parsing: .unconditional, help: .value("secret", "The passcode of --login."))
    var passcode: String?

    @Option(help: .value("name", "The broker's virtual host. (default: the host of the URL)"))
    var vhost: String?

    @Option(
        parsing: .unconditionalSingleValue,
        help: .value(
            "name:value",
            "Send this header. It is split at the first colon, and nothing is trimmed. May be given several times."
        ),
        transform: Self.parseHeader
    )
    var header: [Header] = []

    @Option(
        help: .value("seconds", "The heart-beats to offer, in both directions; 0 for none. (default: 10)"),
        transform: Self.parseHeartbeat
    )
    var heartbeat = Duration.seconds(10)

    @Option(seconds: "The time for connecting and for the broker's receipt. (default: 30)")
    var timeout = Duration.seconds(30)

    /// The length of the longest body to send, in bytes, for which the queue of the connection has room.
    static let longestBody = 256 << 20

    struct Header: Decodable {
        var name: String
        var value: String
    }

    func validate() throws {
        try require((self.login == nil) == (self.passcode == nil), "--login and --passcode must be given together.")
        guard !self.destination.isEmpty else { throw ValidationError("the destination is empty.") }
    }

    static func parseHeader(_ text: String) throws -> Header {
        guard let (name, value) = text.nameAndValue else { throw ValidationError("expected NAME:VALUE") }
        return Header(name: String(name), value: String(value))
    }

    static func parseHeartbeat(_ text: String) throws -> Duration {
        text == "0" ? .zero : try DurationArgument.parse(text)
    }

    var headers: STOMPHeaders { STOMPHeaders(self.header.map { ($0.name, $0.value) }) }

    /// The settings of a client, which does not reconnect after an ERROR.
    ///
    /// - Throws: `invalidArgument`.
    func configuration(_ route: RouteOptions) throws(SocketError) -> STOMPClient.Configuration {
        var configuration = try STOMPClient.Configuration(url: self.url)
        route.apply(to: &configuration.socket)
        configuration.socket.maximumQueuedBytes = Self.longestBody
        configuration.host = self.vhost
        if let login = self.login, let passcode = self.passcode {
            configuration.credentials = { STOMPCredentials(login: login, passcode: passcode) }
        }
        configuration.heartbeats = STOMPHeartbeats(send: self.heartbeat, receive: self.heartbeat)
        // Earlier than the command's timeout, so that the error names the broker's silence.
        configuration.connectTimeout = min(configuration.connectTimeout, self.timeout / 10 * 9)
        configuration.timeout = self.timeout
        configuration.reconnects = { _ in false }
        return configuration
    }
}
