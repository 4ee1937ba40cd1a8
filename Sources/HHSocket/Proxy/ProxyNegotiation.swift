import NIOCore

/// What we and a proxy say to each other before it lets bytes through. It does no I/O.
protocol ProxyNegotiation: Sendable {
    /// What is to be sent first. To be called once.
    mutating func begin() -> ByteBuffer

    /// Takes what it understands from the front of what has come. Nothing is asked again once it has said
    /// ``ProxyStep/connected`` or thrown.
    mutating func receive(_ bytes: inout ByteBuffer) throws(ProxyFailure) -> ProxyStep

    /// The proxy has closed the connection: what that means.
    func closed() -> ProxyFailure
}

/// What comes next.
enum ProxyStep: Hashable, Sendable {
    /// More bytes are needed.
    case wait
    /// To be sent; then ``ProxyNegotiation/receive(_:)`` goes on.
    case send(ByteBuffer)
    /// What is left of the bytes, and all that comes from now on, is the server's.
    case connected
}

extension ProxyNegotiation {
    func closed() -> ProxyFailure {
        ProxyFailure(.closed, "the proxy closed the connection before it had answered")
    }
}

extension Proxy {
    /// What is to be said to this proxy.
    ///
    /// - Throws: ``SocketError`` with code `invalidArgument` for what cannot be expressed to the proxy.
    func negotiation(to server: Endpoint) throws(SocketError) -> any ProxyNegotiation {
        func refuse(_ reason: String) -> SocketError {
            SocketError(.invalidArgument, message: "cannot connect to \(server) through \(self): \(reason)")
        }
        guard self.endpoint.unixPath == nil, (1...65_535).contains(self.endpoint.port), !self.endpoint.host.isEmpty
        else { throw refuse("a host and a port from 1 to 65535 are needed for the proxy") }
        // Of anything else a request could be made that is another one.
        guard server.host.isPlain else {
            throw refuse("a proxy needs the server's name in ASCII, without spaces; write others as xn--…")
        }
        switch self.kind {
        case .http:
            if self.credentials?.user.utf8.contains(UInt8(ascii: ":")) == true {
                throw refuse("for HTTP the user's name may have no colon")
            }
            return HTTPConnectNegotiation(to: server, credentials: self.credentials)
        case .socks5:
            guard let negotiation = SOCKS5Negotiation(to: server, credentials: self.credentials) else {
                throw refuse("for SOCKS5 the server's name, the user's and the password have at most 255 bytes each")
            }
            return negotiation
        }
    }
}
