// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// The request of a connection, kept for its lifetime in one piece of memory, since it is hardly ever read, and a
/// browser's many header fields take a lot of memory one by one.
struct KeptRequest: Sendable {
    private static let end = UInt8(ascii: "\n")

    /// The path, the query with its question mark, and the fields, on a line each. None of them has a line feed.
    private let text: String

    init(_ head: OpeningRequestHead) {
        let fields = head.headers.all
        var text = ""
        text.reserveCapacity(
            head.path.utf8.count + (head.query?.utf8.count ?? 0) + 2
                + fields.reduce(0) { $0 + $1.name.utf8.count + $1.value.utf8.count + 2 }
        )
        text += head.path
        text += "\n"
        if let query = head.query { text += "?\(query)" }
        for field in fields {
            text += "\n"
            text += field.name
            text += ":"
            text += field.value
        }
        self.text = text
    }

    var resource: Resource { .keptRequest(self.text.utf8.count) }

    var request: WebSocketListening.Request {
        let lines = self.text.utf8.split(separator: Self.end, omittingEmptySubsequences: false)
        return WebSocketListening.Request(
            path: Self.text(lines[0]),
            query: lines[1].isEmpty ? nil : Self.text(lines[1].dropFirst()),
            headers: lines.dropFirst(2).map { line in
                // A name has no colon.
                let name = line.prefix { $0 != UInt8(ascii: ":") }
                return (Self.text(name), Self.text(line.dropFirst(name.count + 1)))
            }
        )
    }

    private static func text(_ bytes: Substring.UTF8View) -> String { String(Substring(bytes)) }
}
