// SPDX-License-Identifier: Apache-2.0
/// The part of a WebSocket's URL that TCP does not use. A reference, so that endpoints stay small.
final class WebSocketLocation: Hashable, Sendable {
    /// Whether TLS is below the WebSocket.
    let isSecure: Bool
    let path: String
    /// The query, unchanged; nil if there is none.
    let query: String?

    init(isSecure: Bool, path: String, query: String?) {
        self.isSecure = isSecure
        self.path = path
        self.query = query
    }

    static func == (one: WebSocketLocation, other: WebSocketLocation) -> Bool {
        one === other || one.isSecure == other.isSecure && one.path == other.path && one.query == other.query
    }

    func hash(into hasher: inout Hasher) {
        hasher.combine(self.isSecure)
        hasher.combine(self.path)
        hasher.combine(self.query)
    }
}

extension WebSocketLocation: CustomReflectable {
    /// Without the query, which may be a secret.
    var customMirror: Mirror { Mirror(self, children: ["path": self.path]) }
}
