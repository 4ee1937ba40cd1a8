// SPDX-License-Identifier: Apache-2.0
/// The options with which a socket opens WebSockets, if a server's address is a URL such as `wss://example.com/rpc`.
public struct WebSocketOptions: Sendable {
    /// The header fields of each opening request, `Cookie` and `Authorization` among them. None by default. They are
    /// not sent to another origin to which a server redirects.
    public var headers: [(name: String, value: String)] = []
    /// The value of `Origin`; nil by default: only browsers send it.
    public var origin: String?
    /// The subprotocol that carries the frames. Nil, the default: `hhsocket.1` for the standard format, and
    /// `hhsocket.1.` followed by the name of another preset. A described format requires a name.
    public var subprotocol: String?
    /// The permessage-deflate that is offered if a WebSocket carries frames. Nil, the default, for none, since bodies
    /// are compressed as hello agrees. On a connection that agrees on permessage-deflate hello does not offer
    /// compression: nothing is compressed twice. A ``WebSocketLink`` has a separate setting.
    public var compression: WebSocketCompression?
    /// Changes each opening request before it is sent, also those to where a server redirects: for a fresh token in a
    /// header field or in the path. Called for each attempt; an error that it throws fails the attempt.
    public var prepare: (@Sendable (WebSocketRequest) async throws -> WebSocketRequest)?

    public init() {}
}

/// A request to open a WebSocket, before it is sent.
public struct WebSocketRequest: Sendable {
    /// The URL, with its query.
    public let url: String
    /// The path and the query that are requested, at first the URL's.
    public var path: String
    /// The header fields in addition to those of the handshake.
    public var headers: [(name: String, value: String)]
    /// Whether a server has redirected to the URL.
    public let isRedirected: Bool
}
