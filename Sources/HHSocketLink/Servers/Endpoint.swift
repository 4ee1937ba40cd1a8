// SPDX-License-Identifier: Apache-2.0
/// The address of a server: a TCP port of a host, a Unix domain socket, or the URL of a WebSocket.
public struct Endpoint: Hashable, Sendable {
    /// A host name, an IPv4 address, or an IPv6 address without brackets. Empty for a Unix domain socket.
    public var host: String
    /// A TCP port, 1 to 65,535; in a URL without one 80, or 443 for `wss`. 0 for a Unix domain socket.
    public var port: Int
    /// The path of a Unix domain socket; nil for TCP.
    package let unixPath: String?
    /// The name that the server's certificate must have, and that is sent as the server name indication, if ``host`` is
    /// an address that was found by that name, such as by ``ServerResolver/dns(host:port:)``. Nil by default, for the
    /// host itself. `ClientTLS.serverName` takes precedence.
    public var serverName: String?
    /// The scheme, path and query of a WebSocket's URL; nil for addresses that are none.
    let webSocket: WebSocketLocation?

    public init(host: String, port: Int, serverName: String? = nil) {
        self.host = host
        self.port = port
        self.unixPath = nil
        self.serverName = serverName
        self.webSocket = nil
    }

    /// Creates the endpoint of a server on this machine.
    ///
    /// - Parameter unixPath: The path of its socket in the file system; the system allows about 100 bytes.
    public init(unixPath: String) {
        self.host = ""
        self.port = 0
        self.unixPath = unixPath
        self.webSocket = nil
    }

    /// Creates the endpoint of a WebSocket. Its path and query are requested unchanged.
    ///
    /// - Parameter url: A URL such as `wss://example.com/rpc?room=1`; the scheme is `ws`, or `wss` for TLS.
    /// - Throws: ``SocketError`` with code `invalidArgument`, whose message describes the fault of the URL without
    ///   quoting it: a query may be a secret.
    public init(url: String) throws(SocketError) {
        do throws(OpeningError) {
            try self.init(WebSocketTarget(url))
        } catch {
            throw .invalid("\(error)")
        }
    }

    /// Creates the URL of a WebSocket at a path of a server.
    package init(_ address: Endpoint, isSecure: Bool, path: String) {
        self.host = address.host
        self.port = address.port
        self.unixPath = nil
        self.serverName = address.serverName
        self.webSocket = WebSocketLocation(isSecure: isSecure, path: path, query: nil)
    }

    package init(_ target: WebSocketTarget) throws(OpeningError) {
        guard target.port > 0 else { throw .invalidURL(.port) }
        self.host = target.host
        self.port = target.port
        self.unixPath = nil
        self.webSocket = WebSocketLocation(isSecure: target.isSecure, path: target.path, query: target.query)
    }

    /// Creates an endpoint from `host:port`, with an IPv6 address in brackets: `[::1]:7000`; from `unix:` and a path;
    /// or from a URL that begins with `ws://` or `wss://`. Nil for anything else, such as a host with a blank or an `@`;
    /// ``init(url:)`` describes the fault of a URL.
    public init?(_ text: some StringProtocol) {
        if text.contains("://") {
            guard let endpoint = try? Endpoint(url: String(text)) else { return nil }
            self = endpoint
            return
        }
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
        let isBracketed = host.hasPrefix("[") && host.hasSuffix("]")
        if isBracketed { host = host.dropFirst().dropLast() }
        guard !host.isEmpty, (1...65_535).contains(port) else { return nil }
        guard host.unicodeScalars.allSatisfy({ Self.isHost($0, isBracketed: isBracketed) }) else { return nil }
        self.init(host: String(host), port: port)
    }

    /// Whether a host can contain a character: of ASCII those that RFC 3986 calls unreserved, in brackets those of IPv6
    /// addresses and their zones too, and outside of ASCII everything that is visible.
    private static func isHost(_ character: Unicode.Scalar, isBracketed: Bool) -> Bool {
        switch character {
        case "a"..."z", "A"..."Z", "0"..."9", "-", ".", "_", "~": return true
        case ":", "%": return isBracketed
        default: break
        }
        guard !character.isASCII else { return false }
        switch character.properties.generalCategory {
        case .control, .format, .surrogate, .privateUse, .unassigned: return false
        case .lineSeparator, .paragraphSeparator, .spaceSeparator: return false
        default: return true
        }
    }
}

extension Endpoint {
    /// Whether it is the URL of a WebSocket.
    package var isWebSocket: Bool { self.webSocket != nil }

    /// The address without the parts that TCP does not use.
    package var tcpAddress: Endpoint {
        self.webSocket == nil ? self : Endpoint(host: self.host, port: self.port, serverName: self.serverName)
    }

    /// The target for a WebSocket's request; nil for an address that is not a URL. A host that was found by a name is
    /// requested by that name.
    package var webSocketTarget: WebSocketTarget? {
        self.webSocket.map { location in
            WebSocketTarget(
                isSecure: location.isSecure,
                authority: HostAndPort(host: self.serverName ?? self.host, port: self.port),
                path: location.path,
                query: location.query
            )
        }
    }
}

extension Endpoint: CustomStringConvertible {
    /// The text in the form that ``init(_:)`` reads; of a URL without its query, which may be a secret.
    public var description: String {
        if let unixPath = self.unixPath { return "unix:\(unixPath)" }
        let address = self.host.contains(":") ? "[\(self.host)]:\(self.port)" : "\(self.host):\(self.port)"
        guard let location = self.webSocket else { return address }
        return "\(location.isSecure ? "wss" : "ws")://\(address)\(location.path)"
    }
}
