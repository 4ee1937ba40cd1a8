// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// The WebSockets of a listener.
public struct WebSocketListening: Sendable {
    /// The origins whose pages may connect. Requests without an origin do not come from browsers, and are admitted.
    public enum Origins: Sendable {
        case any
        /// Origins such as `https://example.com`.
        case list([String])
        case closure(@Sendable (String) -> Bool)
    }

    /// The answer to a request to open a WebSocket.
    public enum Admission: Sendable {
        /// The WebSocket is opened, with these header fields in the answer.
        case allow(headers: [(name: String, value: String)] = [])
        /// The request is refused with a status of 300 to 599, header fields and a text.
        case refuse(status: Int, headers: [(name: String, value: String)] = [], text: String = "")
    }

    /// A request to open a WebSocket, which is valid apart from the application's checks.
    public struct Request: Sendable {
        /// The path, without the query.
        public let path: String
        /// The query, unchanged; nil if there is none.
        public let query: String?
        /// The header fields, in their order.
        public let headers: [(name: String, value: String)]

        /// The value of the first header field called `name`, ignoring case.
        public func header(_ name: String) -> String? {
            self.headers.first { $0.name.lowercased() == name.lowercased() }?.value
        }
    }

    /// The path of the WebSockets that carry frames, compared exactly and without the query; nil for none. Another
    /// path, unless it is one of ``SocketServer/webSocket(_:options:_:)``, is answered 404.
    package var path: String?
    /// Whether the port also accepts connections that are not WebSockets. A connection that begins with an upper-case
    /// letter is then HTTP: a format whose frames may begin so is refused.
    package var sharesPort: Bool
    /// The origins whose pages may connect; any by default. Others are answered 403.
    public var origins = Origins.any
    /// The subprotocol that carries the frames. Nil, the default: `hhsocket.1` for the standard format, and
    /// `hhsocket.1.` followed by the name of another preset. A described format requires a name. A request that does
    /// not offer it is answered 400.
    public var subprotocol: String?
    /// The permessage-deflate that clients may request. Nil, the default, for none, since bodies are compressed as
    /// hello agrees. On a connection that agrees on permessage-deflate hello does not accept compression: nothing is
    /// compressed twice.
    public var compression: WebSocketCompression?
    /// Decides on a request before it is answered, such as by its `Authorization`. Nil, the default: all are allowed.
    /// It counts towards the 10 s for the opening.
    public var authenticate: (@Sendable (Request) async -> Admission)?
    /// The time within which a client's request must arrive; then its connection is closed.
    package var timeout = Duration.seconds(10)

    /// - Parameters:
    ///   - path: The path of the WebSockets that carry frames, compared exactly and without the query; `/` by default,
    ///     nil for none. Another path, unless it is one of ``SocketServer/webSocket(_:options:_:)``, is answered 404.
    ///   - sharesPort: Whether the port also accepts connections that are not WebSockets; false by default. A
    ///     connection that begins with an upper-case letter is then HTTP: a format whose frames may begin so is
    ///     refused.
    public init(path: String? = "/", sharesPort: Bool = false) {
        self.path = path
        self.sharesPort = sharesPort
    }

    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument`.
    ///
    /// - Parameter routes: The routes for messages.
    func settings(
        for format: WireFormat,
        _ routes: [OpeningRoute] = []
    ) throws(SocketError) -> OpeningSettings {
        var routes = routes
        if let path = self.path { routes.insert(try self.route(of: format, path), at: 0) }
        guard !self.sharesPort || !format.mayBeginWithLetter else {
            throw .invalid(
                """
                frames of the wire format \(format) may begin with an upper-case letter, as HTTP does: give \
                WebSockets a port of their own
                """
            )
        }
        return OpeningSettings(routes: routes, sharesPort: self.sharesPort, timeout: self.timeout)
    }

    /// The route of frames.
    private func route(of format: WireFormat, _ path: String) throws(SocketError) -> OpeningRoute {
        guard let subprotocol = self.subprotocol ?? format.subprotocol else {
            throw .invalid(
                """
                the wire format \(format) has no subprotocol of its own; name one (WebSocketListening.subprotocol)
                """
            )
        }
        try Self.check(path: path)
        do throws(OpeningError) {
            var rules = try OpeningRules(
                path: path,
                subprotocols: [subprotocol],
                requiresSubprotocol: true,
                deflate: self.compression?.policy
            )
            rules.origins = self.origins.rule
            return OpeningRoute(
                rules: rules,
                authenticate: self.authenticate,
                compression: self.compression
            )
        } catch {
            throw .invalid("\(error)")
        }
    }

    static func check(path: String) throws(SocketError) {
        guard !path.hasPrefix("/") else { return }
        throw .invalid("a WebSocket's path begins with /, not as \"\(path)\"")
    }
}

extension WebSocketListening.Origins {
    var rule: OpeningRules.Origins {
        switch self {
        case .any: .any
        case .list(let origins): .list(origins)
        case .closure(let allows): .closure(allows)
        }
    }
}

extension WebSocketListening.Request {
    init(_ head: OpeningRequestHead) {
        self.path = head.path
        self.query = head.query
        self.headers = head.headers.all.map { ($0.name, $0.value) }
    }
}

extension WebSocketListening.Admission {
    var permission: OpeningPermission {
        switch self {
        case .allow(let headers):
            .allow(headers: HTTPFields(headers.map { HTTPField(name: $0.name, value: $0.value) }))
        case .refuse(let status, let headers, let text):
            .refuse(
                status: status,
                headers: HTTPFields(headers.map { HTTPField(name: $0.name, value: $0.value) }),
                text: text
            )
        }
    }
}
