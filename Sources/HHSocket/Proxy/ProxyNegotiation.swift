// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The client's side of the exchange with a proxy before it forwards bytes. It does no I/O.
protocol ProxyNegotiation: Sendable {
    /// Returns the first bytes to send. Called once.
    mutating func begin() -> ByteBuffer

    /// Consumes complete messages from the front of the received bytes. Not called again once it has returned
    /// ``ProxyStep/connected`` or thrown.
    mutating func receive(_ bytes: inout ByteBuffer) throws(ProxyFailure) -> ProxyStep

    /// Returns the failure that a close by the proxy means.
    func closed() -> ProxyFailure
}

/// The next step of a negotiation.
enum ProxyStep: Hashable, Sendable {
    /// More bytes are needed.
    case wait
    /// Send the bytes; then continue with ``ProxyNegotiation/receive(_:)``.
    case send(ByteBuffer)
    /// The rest of the bytes, and all that follow, are the server's.
    case connected
}

extension ProxyNegotiation {
    func closed() -> ProxyFailure {
        ProxyFailure(.closed, "the proxy closed the connection before it had answered")
    }
}

extension Proxy {
    /// Creates the negotiation with this proxy.
    ///
    /// - Throws: ``SocketError`` with code `invalidArgument` for a server, proxy or credentials that its protocol
    ///   cannot express.
    func negotiation(to server: Endpoint) throws(SocketError) -> any ProxyNegotiation {
        func refuse(_ reason: String) -> SocketError {
            .invalid("cannot connect to \(server) through \(self): \(reason)")
        }
        guard self.endpoint.unixPath == nil, (1...65_535).contains(self.endpoint.port), !self.endpoint.host.isEmpty
        else { throw refuse("a host and a port from 1 to 65535 are needed for the proxy") }
        // Other characters could turn the request into a different one.
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
