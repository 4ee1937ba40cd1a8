/// The address of a server: a TCP port of a host, or a Unix domain socket.
public struct Endpoint: Hashable, Sendable {
    /// A host name, an IPv4 address, or an IPv6 address without brackets. Empty for a Unix domain socket.
    public var host: String
    /// A TCP port, 1 to 65,535. 0 for a Unix domain socket.
    public var port: Int
    /// The path of a Unix domain socket; nil for TCP.
    public let unixPath: String?
    /// The name that the server's certificate must have, and that is sent as the server name indication, if ``host`` is
    /// an address that was found by that name, such as by ``ServerResolver/dns(host:port:)``. Nil by default, for the
    /// host itself. `ClientTLS.serverName` takes precedence.
    public var serverName: String?

    public init(host: String, port: Int, serverName: String? = nil) {
        self.host = host
        self.port = port
        self.unixPath = nil
        self.serverName = serverName
    }

    /// Creates the endpoint of a server on this machine.
    ///
    /// - Parameter unixPath: The path of its socket in the file system; the system allows about 100 bytes.
    public init(unixPath: String) {
        self.host = ""
        self.port = 0
        self.unixPath = unixPath
    }

    /// Creates an endpoint from `host:port`, with an IPv6 address in brackets: `[::1]:7000`; or from `unix:` and a
    /// path. Nil for anything else.
    public init?(_ text: some StringProtocol) {
        if text.hasPrefix("unix:") {
            let path = String(text.dropFirst(5))
            guard !path.isEmpty else { return nil }
            self.init(unixPath: path)
            return
        }
        guard let colon = text.lastIndex(of: ":") else { return nil }
        var host = text[..<colon]
        let digits = text[text.index(after: colon)...]
        guard digits.allSatisfy({ $0.isASCII && $0.isNumber }), let port = Int(digits) else { return nil }
        if host.hasPrefix("["), host.hasSuffix("]") {
            host = host.dropFirst().dropLast()
        } else if host.contains(":") {
            return nil
        }
        guard !host.isEmpty, (1...65_535).contains(port) else { return nil }
        self.init(host: String(host), port: port)
    }
}

extension Endpoint: CustomStringConvertible {
    /// The text in the form that ``init(_:)`` reads.
    public var description: String {
        if let unixPath = self.unixPath { return "unix:\(unixPath)" }
        return self.host.contains(":") ? "[\(self.host)]:\(self.port)" : "\(self.host):\(self.port)"
    }
}
