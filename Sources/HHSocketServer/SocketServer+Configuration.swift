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
        /// Listen on a Unix domain socket at this path instead. One that a dead server left there is replaced. Nil by default.
        public var unixPath: String?
        /// TLS; nil by default: what is sent can be read and changed by whoever is on the path.
        public var tls: ServerTLS?
        /// How frames are laid out; the standard format by default. In a format whose responses have no status errors cannot
        /// be told: such answers are not sent, and counted in ``ServerStatistics/errorsNotSent``.
        public var wireFormat: WireFormat
        /// What the format's custom response fields hold, by name, in pushes and pings, and in answers where the request has
        /// no field of that name; those that it has are repeated. Fields that are not named here are zero.
        public var header: [String: [UInt8]]
        /// The largest request payload accepted, in bytes; 16 MiB by default. A client that announces a larger one is
        /// answered ``HHSocket/Status/illegalLength`` (301) and its connection closes.
        public var maximumPayloadLength: Int
        /// So many frames with a wrong checksum one after the other close a connection. 3 by default, 1 at least.
        public var maximumCorruptRun: Int
        /// How many requests of one connection may be in flight; 65,536 by default. Further ones are answered
        /// ``HHSocket/Status/overloaded`` (503). As many again may have been cancelled and not have returned yet.
        public var maximumInFlightPerConnection: Int
        /// How many bytes may wait for one slow client before pushes to it are dropped; 4 MiB by default. A push larger
        /// than this still goes to a client for which nothing waits.
        public var maximumPendingWriteBytes: Int
        /// When to ping clients and when to take them for dead. Nil, the default: never. It must be nil in a format in which
        /// servers do not ping. The strategy is asked once for each connection, with an empty history: an adaptive one stays
        /// at its minimum.
        public var heartbeat: HeartbeatPolicy?
        /// The event loops to run on, NIO's POSIX ones. Nil, the default: the server makes its own, one for each core,
        /// and ends them when it is shut down.
        public var eventLoopGroup: (any EventLoopGroup)?

        public init(
            host: String = "127.0.0.1",
            port: Int = 0,
            unixPath: String? = nil,
            tls: ServerTLS? = nil,
            wireFormat: WireFormat = .standard,
            header: [String: [UInt8]] = [:],
            maximumPayloadLength: Int = Frame.defaultMaximumPayloadLength,
            maximumCorruptRun: Int = FrameDecoder.defaultMaximumCorruptRun,
            maximumInFlightPerConnection: Int = 65_536,
            maximumPendingWriteBytes: Int = 4 << 20,
            heartbeat: HeartbeatPolicy? = nil,
            eventLoopGroup: (any EventLoopGroup)? = nil
        ) {
            self.host = host
            self.port = port
            self.unixPath = unixPath
            self.tls = tls
            self.wireFormat = wireFormat
            self.header = header
            self.maximumPayloadLength = maximumPayloadLength
            self.maximumCorruptRun = maximumCorruptRun
            self.maximumInFlightPerConnection = maximumInFlightPerConnection
            self.maximumPendingWriteBytes = maximumPendingWriteBytes
            self.heartbeat = heartbeat
            self.eventLoopGroup = eventLoopGroup
        }
    }
}
