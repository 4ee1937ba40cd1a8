// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// An accepted connection until its client's address is known, and it is admitted: on its event loop.
///
/// Without a proxy the address is known at once. Behind one it comes from the PROXY header, the `X-Forwarded-For`, or
/// both.
final class Arrival {
    private let proxies: ServerProxies
    private let opensWebSockets: Bool
    /// Counts a connection of an address, nil for one without limits, and returns the go-away if there are too many.
    /// Nil once it was called.
    private var admission: ((SocketAddress?) throws -> GoAway?)?
    /// The client's address, as far as it is known: initially that of the socket's peer.
    private var known: SocketAddress?
    /// The go-away for a client beyond a limit; nil if it is served, or not admitted yet.
    private var farewell: GoAway?
    /// Whether the connection must begin with a PROXY header.
    let expectsHeader: Bool

    /// - Parameters:
    ///   - peer: The address of the socket's peer.
    ///   - opensWebSockets: Whether an opening request may name the client.
    ///   - admission: Counts a connection of an address, nil for one without limits. It returns the go-away if there
    ///     are too many, and throws if the connection must be closed at once.
    init(
        from peer: SocketAddress?,
        through proxies: ServerProxies,
        opensWebSockets: Bool,
        admission: @escaping (SocketAddress?) throws -> GoAway?
    ) {
        self.known = peer
        self.proxies = proxies
        self.opensWebSockets = opensWebSockets
        self.admission = admission
        self.expectsHeader = proxies.proxyProtocol.contains(peer)
    }

    var isAdmitted: Bool { self.admission == nil }
    var address: SocketAddress? { self.known }
    var refusal: GoAway? { self.farewell }

    /// Admits the client unless an opening request may name another.
    ///
    /// - Parameter header: The content of the PROXY header, if there was one.
    func identify(by header: ProxyHeader? = nil) throws {
        if case .client(let address) = header { self.known = address }
        guard !self.opensWebSockets || !self.proxies.forwardedFor.contains(self.known) else { return }
        try self.admit()
    }

    /// Admits the client that an opening request names, unless one is admitted already.
    ///
    /// - Parameter values: The request's `X-Forwarded-For`.
    /// - Returns: The first part that was found to be invalid.
    func identify(byForwardedFor values: [String]) throws -> String? {
        guard !self.isAdmitted else { return nil }
        let forwarded = ForwardedFor(values, through: self.proxies.forwardedFor)
        if let client = forwarded.client { self.known = client }
        try self.admit()
        return forwarded.malformed
    }

    /// Admits the client with the known address.
    func admit() throws {
        guard let admission = self.admission.take() else { return }
        let isProxy =
            self.proxies.proxyProtocol.contains(self.known) || self.proxies.forwardedFor.contains(self.known)
        self.farewell = try admission(isProxy ? nil : self.known)
    }
}
