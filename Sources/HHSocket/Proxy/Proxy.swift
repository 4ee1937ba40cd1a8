import Foundation

/// A proxy that connects us to the servers: ``SocketConfiguration/proxy``.
///
/// The proxy finds the server: its host name is handed over as it is, and no name of a server is looked up here. What
/// is configured is done: a server on this machine is reached through the proxy too. Only Unix domain sockets are not.
///
/// What goes to the proxy itself is not encrypted, the password included. ``SocketConfiguration/tls`` is between us and
/// the server: the proxy then sees the server's name and how much is sent, but not what.
public struct Proxy: Hashable, Sendable {
    /// What the proxy speaks. Cases may be added; have a default when you switch over it.
    public enum Kind: String, Hashable, Sendable {
        /// HTTP's method CONNECT (RFC 9110, 9.3.6); ``Credentials`` by the scheme Basic (RFC 7617).
        case http
        /// SOCKS version 5 (RFC 1928), with ``Credentials`` as in RFC 1929 or without.
        case socks5
    }

    /// The credentials for the proxy.
    public struct Credentials: Hashable, Sendable {
        /// At most 255 bytes for SOCKS5; without a colon for HTTP.
        public var user: String
        /// At most 255 bytes for SOCKS5. No description shows it.
        public var password: String

        public init(user: String, password: String) {
            self.user = user
            self.password = password
        }
    }

    /// The port where none is said: 1080 for every kind, as curl has it.
    public static let defaultPort = 1_080

    public var kind: Kind
    /// Where the proxy listens.
    public var endpoint: Endpoint
    /// Nil: none are offered.
    public var credentials: Credentials?

    private init(_ kind: Kind, _ endpoint: Endpoint, _ credentials: Credentials?) {
        self.kind = kind
        self.endpoint = endpoint
        self.credentials = credentials
    }

    /// A proxy that speaks HTTP's CONNECT.
    ///
    /// - Parameters:
    ///   - host: A name, an IPv4 address, or an IPv6 address without brackets.
    ///   - port: A TCP port, 1 to 65,535; 1080 by default.
    ///   - credentials: None by default. They are sent with the first request, without being asked for.
    public static func http(host: String, port: Int = defaultPort, credentials: Credentials? = nil) -> Proxy {
        Proxy(.http, Endpoint(host: host, port: port), credentials)
    }

    /// A proxy that speaks SOCKS5.
    ///
    /// - Parameters:
    ///   - host: A name, an IPv4 address, or an IPv6 address without brackets.
    ///   - port: A TCP port, 1 to 65,535; 1080 by default.
    ///   - credentials: None by default. The proxy may choose to do without them.
    public static func socks5(host: String, port: Int = defaultPort, credentials: Credentials? = nil) -> Proxy {
        Proxy(.socks5, Endpoint(host: host, port: port), credentials)
    }

    /// Reads what the variables `https_proxy` and `all_proxy` hold: `http://user:password@host:port`, or with
    /// `socks5://` or `socks5h://`, which are the same here. User and password may be percent-encoded and may be left
    /// out, and so may the port, which is 1080 then. An IPv6 address stands in brackets.
    ///
    /// - Throws: ``SocketError`` with code `invalidArgument` for anything else. Its message does not repeat the URL,
    ///   which may have a password.
    public init(url: String) throws(SocketError) {
        func refuse(_ reason: String) -> SocketError {
            SocketError(
                .invalidArgument,
                message: "the proxy's URL cannot be used: \(reason); write http://host:port or socks5://host:port"
            )
        }
        guard let mark = url.range(of: "://") else { throw refuse("it has no scheme") }
        let kind: Kind
        switch url[..<mark.lowerBound].lowercased() {
        case "http": kind = .http
        case "socks5", "socks5h": kind = .socks5
        default: throw refuse("its scheme is neither http nor socks5")
        }
        var rest = url[mark.upperBound...]
        var credentials: Credentials?
        if let at = rest.lastIndex(of: "@") {
            let parts = rest[..<at].split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            let texts = parts.compactMap { $0.removingPercentEncoding }
            guard texts.count == parts.count else { throw refuse("user or password are wrongly percent-encoded") }
            if texts != [""] { credentials = Credentials(user: texts[0], password: texts.count > 1 ? texts[1] : "") }
            rest = rest[rest.index(after: at)...]
        }
        if rest.hasSuffix("/") { rest = rest.dropLast() }
        let hasPort = rest.hasPrefix("[") ? !rest.hasSuffix("]") : rest.contains(":")
        guard !rest.contains(where: { "/?#".contains($0) }),
            let endpoint = Endpoint(hasPort ? String(rest) : "\(rest):\(Self.defaultPort)"), endpoint.unixPath == nil,
            endpoint.host.isPlain
        else {
            throw refuse("behind the scheme there must be a host, a port from 1 to 65535, and nothing else")
        }
        self.init(kind, endpoint, credentials)
    }
}

extension Proxy: CustomStringConvertible {
    /// As ``init(url:)`` reads it, but for the password, which is left out.
    public var description: String {
        let harmless = CharacterSet.alphanumerics.union(CharacterSet(charactersIn: "-._~"))
        let user = self.credentials?.user.addingPercentEncoding(withAllowedCharacters: harmless)
        return "\(self.kind.rawValue)://\(user.map { "\($0)@" } ?? "")\(self.endpoint)"
    }
}

extension Proxy.Credentials: CustomStringConvertible, CustomReflectable {
    /// The user's name.
    public var description: String { self.user }

    // For `dump`, which asks for no description.
    public var customMirror: Mirror { Mirror(self, children: ["user": self.user]) }
}

extension String {
    /// Whether it is ASCII that can be seen: what a request holds as it is, without becoming another request.
    var isPlain: Bool { self.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F } }
}
