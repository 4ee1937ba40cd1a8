import NIOCore

extension Endpoint {
    /// The host, where it is an IP address and no name; its port is 0.
    var ipAddress: SocketAddress? {
        self.unixPath == nil ? try? SocketAddress(ipAddress: self.host, port: 0) : nil
    }

    /// Whether the host is an IP address.
    var isAddress: Bool { self.ipAddress != nil }
}
