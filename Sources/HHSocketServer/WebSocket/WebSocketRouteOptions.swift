// SPDX-License-Identifier: Apache-2.0
public import HHSocketLink

/// The rules of the WebSockets at one path.
public struct WebSocketRouteOptions: Sendable {
    /// The subprotocols that the server speaks. Of those that a client offers the first that is among them is selected;
    /// a client that offers none of them is let in without one. None by default.
    public var subprotocols: [String] = []
    /// The origins whose pages may connect; any by default. Others are answered 403.
    public var origins = WebSocketListening.Origins.any
    /// Decides on a request before it is answered, such as by its `Authorization`. Nil, the default: all are allowed.
    public var authenticate: (@Sendable (WebSocketListening.Request) async -> WebSocketListening.Admission)?
    /// The compression that clients may ask for. Nil, the default: none, since Apple's clients mishandle it.
    public var compression: WebSocketCompression?
    /// Whether messages may be compressed for the client that sends this request. Nil, the default: for all, if
    /// ``compression`` is set.
    public var mayCompress: (@Sendable (WebSocketListening.Request) -> Bool)?
    /// The longest message that is received, in bytes, after decompression. 16 MiB by default; a longer one, or one in
    /// more than 131,072 fragments, closes the connection with 1009.
    public var maximumMessageLength = WebSocketLimits().maximumMessageLength
    /// The largest number of fragments of a message.
    package var maximumFragments = WebSocketLimits().maximumFragments
    /// The rules by which the server pings the client and considers it dead. Nil, the default: it does neither.
    public var heartbeat: HeartbeatPolicy?

    public init() {}

    func route(_ path: String?, _ messages: WebSocketRoute) throws(SocketError) -> OpeningRoute {
        if let path { try WebSocketListening.check(path: path) }
        do throws(OpeningError) {
            var rules = try OpeningRules(
                path: path,
                subprotocols: self.subprotocols,
                deflate: self.compression?.policy
            )
            rules.origins = self.origins.rule
            if let mayCompress = self.mayCompress {
                rules.mayCompress = { mayCompress(WebSocketListening.Request($0)) }
            }
            return OpeningRoute(rules: rules, authenticate: self.authenticate, messages: messages)
        } catch {
            throw .invalid("\(error)")
        }
    }
}

/// The application's part of the WebSockets at one path. A class, since each connection refers to it.
final class WebSocketRoute: Sendable {
    enum Handler: Sendable {
        case task(@Sendable (WebSocketConnection) async throws -> Void)
        case synchronous(@Sendable (WebSocketMessage, WebSocketConnection) -> Void)
    }

    let handler: Handler
    let options: WebSocketRouteOptions

    init(_ handler: Handler, _ options: WebSocketRouteOptions) {
        self.handler = handler
        self.options = options
    }
}
