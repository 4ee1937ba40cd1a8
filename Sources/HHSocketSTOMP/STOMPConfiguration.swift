// SPDX-License-Identifier: Apache-2.0
public import HHSocket

/// The settings of a client.
public struct STOMPConfiguration: Sendable {
    /// The settings of connecting and staying connected. Settings of frames, the gate and
    /// ``/HHSocket/SocketConfiguration/heartbeat`` have no effect.
    public var socket: SocketConfiguration
    /// The versions to choose from. All by default.
    public var versions = Set(STOMPVersion.allCases)
    /// The header `host` of CONNECT, a virtual host of the broker. Nil, the default: the host of the address.
    /// RabbitMQ wants its own name for it, as a rule `/`.
    public var host: String?
    /// Returns the user of the broker. It is called for each connection, so a token may be fresh. Nil, the default:
    /// none. If it throws, the attempt fails, and the next one follows after the back-off. Its task is cancelled
    /// with the attempt, after ``connectTimeout`` for example. The credentials are not sent to a broker of another
    /// origin, to which a WebSocket was redirected: such an attempt fails.
    public var credentials: (@Sendable () async throws -> STOMPCredentials)?
    /// Further headers of CONNECT. None by default. They may be secrets: if there are any, an attempt that is
    /// redirected to another origin fails.
    public var connectHeaders = STOMPHeaders()
    /// The heart-beats to offer. Every 10 s in both directions by default. The broker is considered lost after
    /// twice the agreed interval without a byte.
    public var heartbeats = STOMPHeartbeats()
    /// The time that the broker may take to answer CONNECT. 10 s by default.
    public var connectTimeout = Duration.seconds(10)
    /// The time that an operation may take: the wait for a connection, and for the broker's receipt. 30 s by
    /// default.
    public var timeout = Duration.seconds(30)
    /// The time that the broker may take to confirm DISCONNECT. 5 s by default.
    public var disconnectTimeout = Duration.seconds(5)
    /// The number of messages that may wait for a connection. 10,000 by default. Their bytes are bounded by
    /// ``/HHSocket/SocketConfiguration/maximumQueuedBytes``. Further messages fail with `queueFull`.
    public var maximumWaitingMessages = 10_000
    /// The number of received bytes that may wait to be read while an operation waits for the broker's answer,
    /// which may follow messages. 64 MiB by default; at other times 1 MiB for each subscription.
    package var maximumBufferedBytes = 64 << 20
    /// The largest length of a body, in bytes; 16 MiB by default, and at most 1 GiB. A frame with a longer one, with
    /// more than 1,024 headers or with more than 64 KiB of them is refused when it is sent, and ends the connection
    /// with `protocolViolation` when it arrives.
    public var maximumBodyLength: Int {
        get { self.limits.maximumBodyLength }
        set { self.limits.maximumBodyLength = newValue }
    }
    /// The limits of frames.
    package var limits = STOMPLimits()
    /// Whether texts are sent without `content-length`. False by default. ActiveMQ and bridges to JMS treat
    /// messages that have one as binary; a text with a zero byte is refused then.
    public var omitsContentLengthOfText = false
    /// Returns whether to reconnect after the broker has ended a connection with this ERROR. By default it does. It
    /// never reconnects after an ERROR in answer to CONNECT.
    public var reconnects: @Sendable (STOMPServerError) -> Bool = { _ in true }

    /// - Parameter socket: Its servers are hosts and ports, or URLs of WebSockets.
    public init(socket: SocketConfiguration) {
        self.socket = socket
    }

    /// - Parameter servers: The servers to choose from: hosts and ports, or URLs of WebSockets.
    public init(servers: [Endpoint]) {
        self.init(socket: SocketConfiguration(servers: servers))
    }

    /// - Parameter url: `stomp://host:port`, with 61613 as the default port; `stomps://host:port` for TLS, with
    ///   61614; `ws://host:port/path` or `wss://…` for a WebSocket.
    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument`, whose message does not quote the URL.
    public init(url: String) throws(SocketError) {
        for (scheme, port) in [("stomp", 61_613), ("stomps", 61_614)] where url.hasPrefix("\(scheme)://") {
            self.init(servers: [try Self.address(url.dropFirst(scheme.count + 3), scheme, defaultPort: port)])
            if scheme == "stomps" { self.socket.tls = ClientTLS() }
            return
        }
        guard url.hasPrefix("ws://") || url.hasPrefix("wss://") else {
            throw .invalid("a broker's URL begins with stomp://, stomps://, ws:// or wss://")
        }
        self.init(servers: [try Endpoint(url: url)])
    }

    private static func address(
        _ text: Substring,
        _ scheme: String,
        defaultPort: Int
    ) throws(SocketError) -> Endpoint {
        var authority = text.last == "/" ? text.dropLast() : text
        guard !authority.contains("@") else {
            throw .invalid("the URL contains a user; give it by STOMPClient.Configuration.credentials")
        }
        let hasPort = authority.last == "]" ? false : authority.contains(":")
        if !hasPort { authority += ":\(defaultPort)" }
        guard !authority.contains("/"), let endpoint = Endpoint(authority), endpoint.unixPath == nil else {
            throw .invalid("the URL is not \(scheme)://host or \(scheme)://host:port")
        }
        return endpoint
    }

    /// Whether CONNECT has something that only the configured brokers may get.
    var hasSecrets: Bool { self.credentials != nil || !self.connectHeaders.isEmpty }

    /// The reason why this configuration cannot work; nil if it can.
    var refusal: SocketError? {
        guard self.versions.isEmpty else { return nil }
        return .invalid("there is no version of STOMP to choose (versions)")
    }
}
