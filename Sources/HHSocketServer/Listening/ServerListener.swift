public import HHSocket

/// A place where a server accepts connections, and what is spoken there.
public struct ServerListener: Sendable {
    /// The address to listen on: an IP address or a host name. Empty where ``unixPath`` is set.
    public var host: String
    /// The TCP port, 0 to 65,535. 0 takes a free one; ``SocketServer/addresses`` tells which.
    public var port: Int
    /// Listen on a Unix domain socket at this path instead. One that a dead server left there is replaced.
    public var unixPath: String?
    /// TLS; nil: what is sent can be read and changed by whoever is on the path.
    public var tls: ServerTLS?
    /// How frames are laid out. In a format whose responses have no status, errors cannot be sent: such answers are not
    /// sent, and counted in ``ServerStatistics/errorsNotSent``.
    public var wireFormat: WireFormat
    /// The values of the format's custom response fields, by name, in pushes and pings, and in answers where the
    /// request has no field of that name; those that it has are repeated. Fields that are not named here are zero.
    public var header: [String: [UInt8]]

    /// - Parameters:
    ///   - host: `127.0.0.1` by default, so that nothing is offered to the network unasked; `0.0.0.0` is every IPv4
    ///     interface, `::` every interface.
    ///   - port: 0 by default.
    public init(
        host: String = "127.0.0.1",
        port: Int = 0,
        tls: ServerTLS? = nil,
        wireFormat: WireFormat = .standard,
        header: [String: [UInt8]] = [:]
    ) {
        self.host = host
        self.port = port
        self.tls = tls
        self.wireFormat = wireFormat
        self.header = header
    }

    /// - Parameter unixPath: Where the socket is to be in the file system; the system allows about 100 bytes.
    public init(
        unixPath: String,
        tls: ServerTLS? = nil,
        wireFormat: WireFormat = .standard,
        header: [String: [UInt8]] = [:]
    ) {
        self.init(host: "", tls: tls, wireFormat: wireFormat, header: header)
        self.unixPath = unixPath
    }

    /// The address that it is asked to listen on.
    var endpoint: Endpoint {
        self.unixPath.map { Endpoint(unixPath: $0) } ?? Endpoint(host: self.host, port: self.port)
    }
}
