// SPDX-License-Identifier: Apache-2.0
extension WebSocketLink {
    /// The settings of a link.
    public struct Configuration: Sendable {
        /// The settings of connecting and staying connected. Servers are URLs; settings of frames have no effect.
        public var socket: SocketConfiguration
        /// The subprotocols that are offered, the preferred one first. None by default. A server may select one of
        /// them, or none.
        public var subprotocols: [String] = []
        /// The compression that is offered. Nil, the default: none, since some servers and their proxies mishandle it.
        /// Messages under 256 bytes are not compressed.
        public var compression: WebSocketCompression?
        /// The longest message that is received, in bytes, after decompression. 16 MiB by default; a longer one closes
        /// the connection with 1009, as does one with more than 131,072 fragments.
        public var maximumMessageLength = WebSocketLimits().maximumMessageLength
        /// The largest number of fragments of a message; 131,072.
        package var maximumFragments = WebSocketLimits().maximumFragments
        /// The number of messages that may wait for a connection. 10,000 by default. Their bytes are bounded by
        /// ``SocketConfiguration/maximumQueuedBytes``. One more fails with `queueFull`.
        public var maximumWaitingMessages = 10_000
        /// Makes the message that is sent as a heartbeat instead of a ping, for servers that want to read one. Nil, the
        /// default: a ping, with the payload of ``SocketConfiguration/heartbeat``. It runs on the socket's thread,
        /// which it must not block.
        public var heartbeatMessage: (@Sendable () throws -> WebSocketMessage)?
        /// Whether the link reconnects after a close frame of the server's with this code. By default not after 1002,
        /// 1003, 1007 to 1010, 3500 to 3999 and 4500 to 4999.
        public var reconnects: @Sendable (_ code: UInt16) -> Bool = Self.reconnectsByDefault

        /// - Parameter socket: Its servers are URLs that begin with `ws` or `wss`.
        public init(socket: SocketConfiguration) {
            self.socket = socket
        }

        /// - Parameter url: A URL such as `wss://example.com/chat`.
        /// - Throws: ``SocketError`` with code `invalidArgument` that describes the fault of the URL.
        public init(url: String) throws(SocketError) {
            self.init(socket: SocketConfiguration(servers: [try Endpoint(url: url)]))
        }

        /// The default of ``reconnects``: false for the codes after which the same would happen again, and for those
        /// with which Centrifugo's servers end a connection for good.
        @Sendable
        package static func reconnectsByDefault(after code: UInt16) -> Bool {
            switch code {
            case 1_002, 1_003, 1_007...1_010, 3_500...3_999, 4_500...4_999: false
            default: true
            }
        }
    }

    /// An event of a link.
    public enum Event: Sendable {
        /// A connection is open, with the subprotocol that the server selected and the header fields of its answer.
        case opened(Endpoint, subprotocol: String?, headers: [(name: String, value: String)])
        /// An open connection has ended. After ``WebSocketLink/disconnect(code:reason:)`` it is reported when the
        /// connection is closed: when the server has answered, or after 10 s at the latest.
        case closed(Closure)
        /// Another event of the connection.
        case connection(SocketEvent)
    }

    /// The end of a connection that was open.
    public struct Closure: Sendable {
        /// The code of the close frame; 1005 if it had none, and 1006 if there was no close frame.
        public let code: UInt16
        /// The reason, for people to read.
        public let reason: String
        /// Whether both sides have sent a close frame.
        public let wasClean: Bool
        /// The error of a connection that was lost; nil if the user has closed it.
        public let error: SocketError?
    }
}
