// SPDX-License-Identifier: Apache-2.0
extension LineLink {
    /// The settings of a link.
    public struct Configuration: Sendable {
        /// The settings of connecting and staying connected. Settings of frames have no effect; of the heartbeat, only
        /// the interval and, if ``heartbeatLine`` is nil, the payload are used.
        public var socket: SocketConfiguration
        /// The bytes between two lines. LF by default.
        public var delimiter = LineDelimiter.lf
        /// The longest line that is received, in bytes without the delimiter. 1 MiB by default. A longer one ends the
        /// connection with `frameTooLarge`, and the link reconnects; no part of that line is delivered.
        public var maximumLineLength = LineDecoder.defaultMaximumLength
        /// The number of lines that may wait for a connection. 10,000 by default. Their bytes are bounded by
        /// ``SocketConfiguration/maximumQueuedBytes``. One more fails with `queueFull`.
        public var maximumWaitingLines = 10_000
        /// Makes the line that is sent as a heartbeat: at once after each opening, and then whenever nothing was sent
        /// for the interval of ``SocketConfiguration/heartbeat``, 60 s by default. Nil, the default: the payload of
        /// that policy, and no heartbeat if that is empty. It runs on the socket's thread, which it must not block. If
        /// it throws, or its line contains the delimiter, that heartbeat is skipped, with a warning in the log.
        public var heartbeatLine: (@Sendable () throws -> String)?
        /// The time within which data must arrive after a heartbeat: the server counts as dead after the unanswered
        /// ones that ``SocketConfiguration/heartbeat`` allows and one more. Nil, the default: no answer is expected.
        public var heartbeatReplyTimeout: Duration?

        /// - Parameter socket: Its servers are hosts and ports.
        public init(socket: SocketConfiguration) {
            self.socket = socket
        }

        /// - Parameter servers: The servers to choose from, hosts and ports.
        public init(servers: [Endpoint]) {
            self.init(socket: SocketConfiguration(servers: servers))
        }

        /// - Parameter address: `host:port`, or `tls://host:port` for TLS.
        /// - Throws: ``SocketError`` with code `invalidArgument`.
        public init(address: String) throws(SocketError) {
            let isSecure = address.hasPrefix("tls://")
            guard let server = Endpoint(isSecure ? address.dropFirst("tls://".count) : address[...]),
                !server.isWebSocket
            else { throw .invalid("\(address) is not a server address; write host:port, or tls://host:port for TLS") }
            self.init(servers: [server])
            if isSecure { self.socket.tls = ClientTLS() }
        }
    }

    /// An event of a link.
    public enum Event: Sendable {
        /// A connection is open.
        case opened(Endpoint)
        /// An open connection has ended with this error; nil after ``LineLink/disconnect()``, where it is reported when
        /// the connection is closed.
        case closed(SocketError?)
        /// A line that was read from ``LineLink/lines`` is not UTF-8. Other lines are not affected.
        case unreadable(SocketError)
        /// Another event of the connection.
        case connection(SocketEvent)
    }
}
