// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// A mock's answer to a request to open a WebSocket, valid or not.
///
/// Answers are composed of simple ones, modified, and combined in sequence:
///
/// ```swift
/// .accept
/// .refuse(status: 503, headers: ["Retry-After": "2"])
/// .redirect(to: "/elsewhere")
/// .accept.delayed(by: .seconds(2))
/// .accept.dribbled(every: .milliseconds(5))
/// .accept.cut(after: 20).then(.reset)
/// .accept.without("Upgrade")
/// .accept.with("Sec-WebSocket-Protocol", "not offered")
/// .wrongAccept
/// .silence
/// ```
public struct MockOpening: Sendable {
    /// A request to open a WebSocket that a mock received.
    public struct Request: Sendable {
        /// The number of its connection, counted from 0 in the order in which connections were accepted.
        public var connection: Int
        /// The path, without the query.
        public var path: String
        /// The query, unparsed; nil if there is none.
        public var query: String?
        /// The header fields, in their order.
        public var headers: [(name: String, value: String)]
        /// The subprotocols that the client offers, the preferred one first.
        public var subprotocols: [String]

        /// The value of the first header field called `name`, ignoring case.
        public func header(_ name: String) -> String? {
            self.headers.first { $0.name.lowercased() == name.lowercased() }?.value
        }
    }

    /// A change of the header fields of an acceptance.
    enum Edit: Sendable {
        case remove(String)
        case set(String, String)
        case add(String, String)
    }

    struct Sending: Sendable {
        enum Source: Sendable {
            /// A 101 with these changes.
            case acceptance([Edit])
            case raw(ByteBuffer)
        }

        var source: Source
        var dribble: Dribble?
        /// The number of bytes after which the answer is cut.
        var keptBytes: Int?
    }

    typealias Step = MockStep<Sending, Request>

    var steps: [Step]

    private init(_ steps: [Step]) {
        self.steps = steps
    }

    // MARK: Answers

    /// Opens the WebSocket. A request that is not for a WebSocket, or has another path, is refused as a server does:
    /// with 400, 404, 426 or 431.
    public static var accept: MockOpening { MockOpening([.send(Sending(source: .acceptance([])))]) }

    /// Opens the WebSocket with a `Sec-WebSocket-Accept` that does not belong to the client's key.
    public static var wrongAccept: MockOpening {
        .accept.with("Sec-WebSocket-Accept", "AAAAAAAAAAAAAAAAAAAAAAAAAAA=")
    }

    /// Answers with a status, and closes the connection.
    ///
    /// - Parameters:
    ///   - status: The HTTP status, such as 403.
    ///   - headers: Header fields in addition to those of the body; none by default.
    ///   - body: The body; empty by default.
    public static func refuse(
        status: Int,
        headers: KeyValuePairs<String, String> = [:],
        body: String = ""
    ) -> MockOpening {
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
    public static func redirect(to location: String, status: Int = 302) -> MockOpening {
        .refuse(status: status, headers: ["Location": location])
    }

    /// Decides upon the request: `{ $0.header("Authorization") == nil ? .refuse(status: 401) : .accept }`. Runs on the
    /// server's event loop, and must not block.
    public static func respond(_ decide: @escaping @Sendable (Request) -> MockOpening) -> MockOpening {
        MockOpening([.decide { decide($0).steps }])
    }

    /// Performs one of `answers`, chosen by the server's seeded generator.
    public static func oneOf(_ answers: MockOpening...) -> MockOpening { MockOpening([.choose(answers.map(\.steps))]) }

    /// Never answers; the connection stays open.
    public static var silence: MockOpening { MockOpening([Step]()) }

    /// Answers with arbitrary bytes.
    public static func raw(_ bytes: some Sequence<UInt8>) -> MockOpening {
        MockOpening([.send(Sending(source: .raw(ByteBuffer(bytes: bytes))))])
    }

    /// Answers with this text's UTF-8.
    public static func raw(_ text: String) -> MockOpening { .raw(text.utf8) }

    /// Closes the connection after everything that was sent before.
    public static var close: MockOpening { MockOpening([.close]) }

    /// Resets the connection (RST).
    public static var reset: MockOpening { MockOpening([.reset]) }

    // MARK: Adverbs

    /// Waits first, by the server's clock.
    public func delayed(by duration: Duration) -> MockOpening { MockOpening([.wait(duration)] + self.steps) }

    /// Answers a few bytes at a time, in separate writes.
    ///
    /// - Parameters:
    ///   - bytes: The number of bytes in one write; 1 by default.
    ///   - interval: The time between two writes, by the server's clock; none by default.
    public func dribbled(bytes: Int = 1, every interval: Duration = .zero) -> MockOpening {
        self.changingSends { $0.dribble = Dribble(bytes: max(1, bytes), interval: interval) }
    }

    /// Sends only the first `bytes` bytes of the answer.
    public func cut(after bytes: Int) -> MockOpening { self.changingSends { $0.keptBytes = max(0, bytes) } }

    /// Opens the WebSocket without this header field, such as `Upgrade`, ignoring case.
    public func without(_ name: String) -> MockOpening { self.edited(.remove(name)) }

    /// Opens the WebSocket with this value of a header field instead of the right one, or with another header field.
    public func with(_ name: String, _ value: String) -> MockOpening { self.edited(.set(name, value)) }

    /// Opens the WebSocket with an additional header field, even if one with its name exists.
    public func adding(_ name: String, _ value: String) -> MockOpening { self.edited(.add(name, value)) }

    /// Performs this answer, then `next`.
    public func then(_ next: MockOpening) -> MockOpening { MockOpening(self.steps + next.steps) }

    private func edited(_ edit: Edit) -> MockOpening {
        self.changingSends { sending in
            guard case .acceptance(let edits) = sending.source else { return }
            sending.source = .acceptance(edits + [edit])
        }
    }

    private func changingSends(_ change: @escaping @Sendable (inout Sending) -> Void) -> MockOpening {
        MockOpening(self.steps.map { $0.changingSends(change) })
    }
}

extension MockOpening.Request: CustomStringConvertible {
    public var description: String { "GET \(self.path) on connection \(self.connection)" }
}
