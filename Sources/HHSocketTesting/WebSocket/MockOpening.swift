// SPDX-License-Identifier: Apache-2.0

/// A mock's answer to a request to open a WebSocket, valid or not.
///
/// Answers are composed of simple ones, modified, and combined in sequence:
///
/// ```swift
/// .accept
/// .refuse(status: 503, headers: ["Retry-After": "2"])
/// .refuse(status: 302, headers: ["Location": "/elsewhere"])
/// .accept.delayed(by: .seconds(2))
/// .accept.dribbled(every: .milliseconds(5))
/// .accept.cut(after: 20).then(.reset)
/// .accept.without("Upgrade")
/// .accept.with("Sec-WebSocket-Protocol", "not offered")
/// .drop
/// ```
public typealias MockOpening = MockReaction<OpeningWire>

/// The requests to open WebSockets, and their answers: see ``MockOpening``.
public enum OpeningWire: MockWire {
    /// A request to open a WebSocket that a mock received.
    public struct Received: Sendable, SummarizedEvent {
        /// The number of its connection, counted from 0 in the order in which connections were accepted.
        package var connection: Int
        /// The path, without the query.
        public package(set) var path: String
        /// The query, unparsed; nil if there is none.
        public package(set) var query: String?
        /// The header fields, in their order.
        public package(set) var headers: [(name: String, value: String)]
        /// The subprotocols that the client offers, the preferred one first.
        public package(set) var subprotocols: [String]

        /// The value of the first header field called `name`, ignoring case.
        public func header(_ name: String) -> String? {
            self.headers.first { $0.name.lowercased() == name.lowercased() }?.value
        }

        var summary: String { "GET \(self.path) on connection \(self.connection)" }
    }

    /// A change of the header fields of an acceptance.
    enum Edit: Sendable {
        case remove(String)
        case set(String, String)
        case add(String, String)
    }

    /// A response that accepts a WebSocket, right or wrong. ``MockOpening`` makes it.
    public struct Output: Sendable {
        /// The changes of the right response.
        var edits: [Edit] = []
    }
}

extension MockReaction where Wire == OpeningWire {
    // MARK: Answers

    /// Opens the WebSocket. A request that is not for a WebSocket, or has another path, is refused as a server does:
    /// with 400, 404, 426 or 431.
    public static var accept: Self { Self(OpeningWire.Output()) }

    /// Opens the WebSocket with a `Sec-WebSocket-Accept` that does not belong to the client's key.
    package static var wrongAccept: Self {
        .accept.with("Sec-WebSocket-Accept", "AAAAAAAAAAAAAAAAAAAAAAAAAAA=")
    }

    /// Answers with a status, and closes the connection.
    ///
    /// - Parameters:
    ///   - status: The HTTP status, such as 403.
    ///   - headers: Header fields in addition to those of the body; none by default.
    ///   - body: The body; empty by default.
    public static func refuse(status: Int, headers: KeyValuePairs<String, String> = [:], body: String = "") -> Self {
        var head = "HTTP/1.1 \(status) Scripted\r\n"
        for (name, value) in headers { head += "\(name): \(value)\r\n" }
        head += "Content-Length: \(body.utf8.count)\r\nConnection: close\r\n\r\n\(body)"
        return .raw(head).then(.close)
    }

    /// Answers that the WebSocket is elsewhere, and closes the connection.
    ///
    /// - Parameters:
    ///   - location: A URL, or a path of this server.
    ///   - status: 302 by default.
    package static func redirect(to location: String, status: Int = 302) -> Self {
        .refuse(status: status, headers: ["Location": location])
    }

    /// Never answers; the connection stays open.
    package static var silence: Self { .drop }

    /// Closes the connection after everything that was sent before.
    package static var close: Self { .disconnect }

    // MARK: Adverbs

    /// Opens the WebSocket without this header field, such as `Upgrade`, ignoring case.
    public func without(_ name: String) -> Self { self.edited(.remove(name)) }

    /// Opens the WebSocket with this value of a header field instead of the right one, or with another header field.
    public func with(_ name: String, _ value: String) -> Self { self.edited(.set(name, value)) }

    /// Opens the WebSocket with an additional header field, even if one with its name exists.
    package func adding(_ name: String, _ value: String) -> Self { self.edited(.add(name, value)) }

    private func edited(_ edit: OpeningWire.Edit) -> Self { self.changingOutput { $0.edits.append(edit) } }
}
