import HHSocket
import NIOCore

extension SocketServer {
    /// What a server is made with.
    public struct Configuration: Sendable {
        /// The address to listen on: an IP address or a host name. `127.0.0.1` by default, so that nothing is offered to
        /// the network unasked; `0.0.0.0` is every IPv4 interface, `::` every interface.
        public var host: String
        /// The TCP port, 0 to 65,535. 0, the default, takes a free one; ``SocketServer/address`` tells which.
        public var port: Int
        /// The largest request payload accepted, in bytes; 16 MiB by default. A client that announces a larger one is
        /// answered ``HHSocket/Status/illegalLength`` (301) and its connection closes.
        public var maximumPayloadLength: Int
        /// How many requests of one connection may be in flight; 65,536 by default. Further ones are answered
        /// ``HHSocket/Status/overloaded`` (503). As many again may have been cancelled and not have returned yet.
        public var maximumInFlightPerConnection: Int
        /// How many bytes may wait for one slow client before pushes to it are dropped; 4 MiB by default. A push larger
        /// than this still goes to a client for which nothing waits.
        public var maximumPendingWriteBytes: Int
        /// When to ping clients and when to take them for dead. Nil, the default: never.
        public var heartbeat: HeartbeatPolicy?
        /// The event loops to run on, NIO's POSIX ones. Nil, the default: the server makes its own, one for each core,
        /// and ends them when it is shut down.
        public var eventLoopGroup: (any EventLoopGroup)?

        public init(
            host: String = "127.0.0.1",
            port: Int = 0,
            maximumPayloadLength: Int = Frame.defaultMaximumPayloadLength,
            maximumInFlightPerConnection: Int = 65_536,
            maximumPendingWriteBytes: Int = 4 << 20,
            heartbeat: HeartbeatPolicy? = nil,
            eventLoopGroup: (any EventLoopGroup)? = nil
        ) {
            self.host = host
            self.port = port
            self.maximumPayloadLength = maximumPayloadLength
            self.maximumInFlightPerConnection = maximumInFlightPerConnection
            self.maximumPendingWriteBytes = maximumPendingWriteBytes
            self.heartbeat = heartbeat
            self.eventLoopGroup = eventLoopGroup
        }
    }
}
