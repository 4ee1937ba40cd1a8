// SPDX-License-Identifier: Apache-2.0
/// The proxies in front of a listener, and the way in which they report the addresses of their clients.
///
/// ```swift
/// // HAProxy with `send-proxy-v2`, or nginx with `proxy_protocol on`.
/// listener.proxies.proxyProtocol = [try IPNetwork("10.0.0.0/24")]
/// // A proxy of HTTP, which opens WebSockets for its clients.
/// listener.proxies.forwardedFor = [try IPNetwork("10.0.1.7")]
/// ```
/// Any program that can connect from a listed network can claim any address: list the proxies, not the network of their
/// clients. ``ServerSession/remoteAddress``, the log and the limits of an address then use the client's address.
/// Addresses in the listed networks have no limits of an address. A Unix domain socket's peers have no IP address, and
/// are not listed.
public struct ServerProxies: Hashable, Sendable {
    /// The networks of proxies whose connections begin with a header of the PROXY protocol, version 1 or 2, before TLS.
    /// Empty by default.
    ///
    /// Every connection from there must begin with one. If it is malformed, or has not arrived within 10 s, the
    /// connection is closed, logged, and counted in ``ServerCounter/proxyHeaderFailures``; a connection that ends
    /// without having sent a byte is a health check, and only closed. If the header marks the proxy's own connection
    /// (`LOCAL`), or the client's address is unknown (`UNKNOWN`), the client has the proxy's address. Connections from
    /// elsewhere are served normally: a header of theirs is invalid bytes.
    public var proxyProtocol: [IPNetwork]
    /// The networks of HTTP proxies whose `X-Forwarded-For` is trusted when a WebSocket is opened. Empty by default.
    ///
    /// The client is the last address in it that is not in these networks: proxies append the address that they see,
    /// and the earlier part may have been invented by the client. Without the field the client has the proxy's address;
    /// an invalid address is logged, and neither it nor the part before it is used. The port is 0 if the field has
    /// none. The field is also read if the PROXY protocol has named an address of these networks.
    ///
    /// On a port that WebSockets share with other connections a connection from there begins with its first byte, or
    /// after 10 s: until then it is not known whether it is a WebSocket.
    public var forwardedFor: [IPNetwork]
    /// The time within which a proxy's PROXY header must arrive.
    package var headerTimeout = Duration.seconds(10)

    /// Whether there are none.
    var isEmpty: Bool { self.proxyProtocol.isEmpty && self.forwardedFor.isEmpty }

    /// Creates a description of proxies; by default there are none.
    package init(proxyProtocol: [IPNetwork] = [], forwardedFor: [IPNetwork] = []) {
        self.proxyProtocol = proxyProtocol
        self.forwardedFor = forwardedFor
    }
}
