// SPDX-License-Identifier: Apache-2.0
public import NIOCore

/// An observer of a ``WebSocketLink``, notified on the configuration's callback queue, in the order of events. Every
/// method is optional.
///
/// Conform in an extension: there the compiler warns of a method whose name or parameters are nearly right, which would
/// never be called.
public protocol WebSocketLinkDelegate: AnyObject, Sendable {
    /// A connection is open. Waiting messages are sent now.
    ///
    /// - Parameters:
    ///   - link: The link.
    ///   - endpoint: The server.
    ///   - subprotocol: The subprotocol that the server selected; nil for none.
    ///   - headers: The header fields of the server's answer.
    func webSocketLink(
        _ link: WebSocketLink,
        didOpenTo endpoint: Endpoint,
        subprotocol: String?,
        headers: [(name: String, value: String)]
    )
    /// A message has arrived. While more than 8 MiB of them wait for the callback queue, reading from the network is
    /// suspended.
    func webSocketLink(_ link: WebSocketLink, didReceive message: WebSocketMessage)
    /// A pong has arrived, whether or not it answers a ping.
    func webSocketLink(_ link: WebSocketLink, didReceivePong payload: ByteBuffer)
    /// An open connection has ended; the next attempt follows automatically, unless the user has closed it or the code
    /// ends the link.
    func webSocketLink(_ link: WebSocketLink, didCloseWith closure: WebSocketLink.Closure)
    /// An attempt failed; the next one follows after the back-off.
    func webSocketLink(_ link: WebSocketLink, didFailToConnectWith error: SocketError)
    /// Attempts have stopped, after the allowed rounds or a close code that ends the link. The error is the last one.
    func webSocketLink(_ link: WebSocketLink, didGiveUpWith error: SocketError)
}

extension WebSocketLinkDelegate {
    public func webSocketLink(
        _ link: WebSocketLink,
        didOpenTo endpoint: Endpoint,
        subprotocol: String?,
        headers: [(name: String, value: String)]
    ) {}
    public func webSocketLink(_ link: WebSocketLink, didReceive message: WebSocketMessage) {}
    public func webSocketLink(_ link: WebSocketLink, didReceivePong payload: ByteBuffer) {}
    public func webSocketLink(_ link: WebSocketLink, didCloseWith closure: WebSocketLink.Closure) {}
    public func webSocketLink(_ link: WebSocketLink, didFailToConnectWith error: SocketError) {}
    public func webSocketLink(_ link: WebSocketLink, didGiveUpWith error: SocketError) {}
}
