// SPDX-License-Identifier: Apache-2.0
import Foundation

/// A proxy through which servers are reached; see ``SocketConfiguration/proxy``.
///
/// The proxy resolves the server's host name, which is passed on unchanged; no name of a server is looked up here. A
/// server on this machine is reached through the proxy too. Only Unix domain sockets are reached directly.
///
/// It speaks HTTP's method CONNECT (RFC 9110, 9.3.6), with ``Credentials`` in the scheme Basic (RFC 7617) or without,
/// or SOCKS version 5 (RFC 1928), with ``Credentials`` as in RFC 1929 or without.
///
/// The negotiation with the proxy is not encrypted, nor is its password. ``SocketConfiguration/tls`` is end to end with
/// the server: the proxy then sees the server's name and the amount of data, but not the data.
public struct Proxy: Hashable, Sendable {
    /// The protocol of the proxy.
    package enum Kind: String, Hashable, Sendable {
        case http
        case socks5
    }

    /// The credentials for the proxy.
    public struct Credentials: Hashable, Sendable {
        package var user: String
        package var password: String

        /// - Parameters:
        ///   - user: The user's name. At most 255 bytes for SOCKS5; without a colon for HTTP.
        ///   - password: The password, which no description shows. At most 255 bytes for SOCKS5.
        public init(user: String, password: String) {
            self.user = user
            self.password = password
        }
    }

    /// The default port: 1080 for every kind, as in curl.
    @usableFromInline package static let defaultPort = 1_080

    package var kind: Kind
    /// The address at which the proxy listens.
    package var endpoint: Endpoint
    /// The credentials; nil to offer none.
    package var credentials: Credentials?

    private init(_ kind: Kind, at endpoint: Endpoint, credentials: Credentials?) {
        self.kind = kind
        self.endpoint = endpoint
        self.credentials = credentials
    }

    /// A proxy that speaks HTTP's CONNECT.
    ///
    /// - Parameters:
    ///   - host: A name, an IPv4 address, or an IPv6 address without brackets.
    ///   - port: A TCP port, 1 to 65,535; 1080 by default.
    ///   - credentials: None by default. They are sent unasked, with the first request.
    public static func http(host: String, port: Int = defaultPort, credentials: Credentials? = nil) -> Proxy {
        Proxy(.http, at: Endpoint(host: host, port: port), credentials: credentials)
    }

    /// A proxy that speaks SOCKS5.
    ///
    /// - Parameters:
    ///   - host: A name, an IPv4 address, or an IPv6 address without brackets.
    ///   - port: A TCP port, 1 to 65,535; 1080 by default.
    ///   - credentials: None by default. They are sent only if the proxy requests them.
    public static func socks5(host: String, port: Int = defaultPort, credentials: Credentials? = nil) -> Proxy {
        Proxy(.socks5, at: Endpoint(host: host, port: port), credentials: credentials)
    }

    /// Creates a proxy from a URL, as in the variables `https_proxy` and `all_proxy`: `http://user:password@host:port`,
    /// or with `socks5://` or `socks5h://`, which mean the same here. User and password may be percent-encoded or
    /// omitted, as may the port, which is then 1080. An IPv6 address must be in brackets.
    ///
    /// - Throws: ``SocketError`` with code `invalidArgument` for anything else. Its message does not repeat the URL,
    ///   which may contain a password.
    public init(url: String) throws(SocketError) {
        func refuse(_ reason: String) -> SocketError {
            .invalid("the proxy's URL cannot be used: \(reason); write http://host:port or socks5://host:port")
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
            throw refuse("after the scheme there must be a host, a port from 1 to 65535, and nothing else")
        }
        self.init(kind, at: endpoint, credentials: credentials)
    }
}

extension Proxy: CustomStringConvertible {
    /// The URL, in the form that ``init(url:)`` reads, without the password.
    public var description: String {
        let harmless = CharacterSet.alphanumerics.union(CharacterSet(charactersIn: "-._~"))
        let user = self.credentials?.user.addingPercentEncoding(withAllowedCharacters: harmless)
        return "\(self.kind.rawValue)://\(user.map { "\($0)@" } ?? "")\(self.endpoint)"
    }
}

extension Proxy.Credentials: CustomStringConvertible, CustomReflectable {
    /// The user's name.
    public var description: String { self.user }

    // For `dump`, which does not use the description.
    public var customMirror: Mirror { Mirror(self, children: ["user": self.user]) }
}

extension String {
    /// Whether all characters are printable ASCII other than space, so that the text cannot alter the request it is
    /// part of.
    var isPlain: Bool { self.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F } }
}
