// SPDX-License-Identifier: Apache-2.0
/// The failure of a proxy to connect to a server: the ``SocketError/underlying`` of errors with the code `proxyFailed`.
public typealias ProxyFailure = NamedFailure<ProxyFailureReason>

/// The reason why a proxy did not connect to a server. Cases may be added; have a default when you switch over it.
public enum ProxyFailureReason: Hashable, Sendable {
    /// The proxy requires authentication, and there are no credentials, or none for a scheme it accepts.
    case authenticationRequired
    /// The proxy does not accept the credentials.
    case authenticationFailed
    /// The proxy refused to connect, or failed: HTTP's status, or SOCKS5's reply code.
    case refused(Int)
    /// The proxy could not reach the server.
    case serverUnreachable
    /// The peer does not speak HTTP or SOCKS5.
    case notAProxy
    /// The connection ended before the proxy had connected to the server.
    case closed
    /// Another failure; see ``NamedFailure/description``.
    case other
}
