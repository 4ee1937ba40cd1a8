// SPDX-License-Identifier: Apache-2.0
/// The address of a WebSocket, from a URL with the scheme `ws`, `wss`, `tcp+ws` or `tcp+wss` (RFC 6455, section 3).
package struct WebSocketTarget: Hashable, Sendable {
    /// A place for URLs, which decides the schemes that they may have.
    package enum Use: Hashable, Sendable {
        /// A server to connect to: `ws` or `wss`.
        case client
        /// An address to listen on: `ws` or `wss`, or with the prefix `tcp+` for a port that accepts TCP links too.
        case listener
        /// The request of a client, or the place it is redirected to: `http` and `https` mean `ws` and `wss`.
        case request
    }

    /// Whether TLS is below the WebSocket.
    package let isSecure: Bool
    /// Whether the listener's port also accepts links that are not WebSockets.
    package let sharesPort: Bool
    /// A host name or an IP address, an IPv6 address without brackets.
    package let host: String
    /// A TCP port, 0 to 65,535.
    package var port: Int
    /// The path, as it was written; at least `/`.
    package let path: String
    /// The query, as it was written, without its question mark; nil if the URL has none.
    package let query: String?

    /// Reads a URL.
    package init(_ text: some StringProtocol, for use: Use = .client) throws(OpeningError) {
        do throws(WebSocketURLFault) {
            self = try Self.read(String(text)[...], use)
        } catch {
            throw .invalidURL(error)
        }
    }

    init(isSecure: Bool, sharesPort: Bool = false, authority: HostAndPort, path: String, query: String?) {
        self.isSecure = isSecure
        self.sharesPort = sharesPort
        self.host = authority.host
        self.port = authority.port ?? (isSecure ? 443 : 80)
        self.path = path.isEmpty ? "/" : path
        self.query = query
    }

    /// Creates the address of another path of `other`'s server.
    init(_ other: WebSocketTarget, path: String, query: String?) {
        self.isSecure = other.isSecure
        self.sharesPort = other.sharesPort
        self.host = other.host
        self.port = other.port
        self.path = path
        self.query = query
    }
}

extension WebSocketTarget {
    /// The port that a URL has if it names none.
    private var defaultPort: Int { self.isSecure ? 443 : 80 }

    /// The host as it is written in URLs.
    private var writtenHost: String { self.host.utf8.contains(UInt8(ascii: ":")) ? "[\(self.host)]" : self.host }

    /// The path and the query, as a request line has them.
    package var requestTarget: String { self.query.map { "\(self.path)?\($0)" } ?? self.path }

    /// The URL with its query.
    package var url: String {
        let query = self.query.map { "?\($0)" } ?? ""
        return "\(self.isSecure ? "wss" : "ws")://\(self.hostField)\(self.path)\(query)"
    }

    /// Returns the same server's address with another path and query, as a request line has them.
    package func requesting(_ requestTarget: String) throws(OpeningError) -> WebSocketTarget {
        guard requestTarget != self.requestTarget else { return self }
        do throws(WebSocketURLFault) {
            try Self.checkCharacters(requestTarget[...])
        } catch {
            throw .invalidURL(error)
        }
        guard requestTarget.hasPrefix("/") else { throw .invalidURL(.path) }
        guard !requestTarget.utf8.contains(UInt8(ascii: "#")) else { throw .invalidURL(.fragment) }
        let (path, query) = Self.pathAndQuery(requestTarget[...])
        return WebSocketTarget(self, path: String(path), query: query.map { String($0) })
    }

    /// The value of `Host`: without the port where it is the scheme's (RFC 6455, section 4.1).
    package var hostField: String {
        self.port == self.defaultPort ? self.writtenHost : "\(self.writtenHost):\(self.port)"
    }

    /// Whether both have the scheme, host and port of one origin (RFC 6454, section 5).
    package func hasOrigin(of other: WebSocketTarget) -> Bool {
        self.isSecure == other.isSecure && self.port == other.port && HTTPSyntax.isSame(self.host, other.host)
    }
}

extension WebSocketTarget: CustomStringConvertible, CustomDebugStringConvertible {
    /// The URL with its port and without its query, which may be a secret.
    package var description: String {
        "\(self.sharesPort ? "tcp+" : "")\(self.isSecure ? "wss" : "ws")://\(self.writtenHost):\(self.port)\(self.path)"
    }

    package var debugDescription: String { self.description }
}

extension WebSocketTarget: CustomReflectable {
    /// Without children: `dump` shows only the description.
    package var customMirror: Mirror { Mirror(self, children: []) }
}
