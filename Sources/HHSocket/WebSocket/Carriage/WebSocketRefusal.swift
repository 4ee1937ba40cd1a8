// SPDX-License-Identifier: Apache-2.0
public import NIOCore

/// The answer of a server that did not open a WebSocket: ``SocketError/underlying`` of an attempt that fails with
/// ``SocketError/Code/handshakeRefused``.
public struct WebSocketRefusal: Error, Sendable {
    /// The status, such as 401 or 503; never 101.
    public let status: Int
    /// The reason phrase, fit to be shown; it may be empty.
    public let reason: String
    /// The header fields, in their order.
    public let headers: [(name: String, value: String)]
    /// The beginning of the body, at most 8 KiB.
    public let body: ByteBuffer
    /// The time after which the server may be tried again, at most 10 minutes; nil if the server gives none. The
    /// back-off honours it.
    public let retryAfter: Duration?

    init(_ refusal: OpeningRefusal) {
        self.status = refusal.status
        self.reason = refusal.reason
        self.headers = refusal.headers.all.map { ($0.name, $0.value) }
        self.body = refusal.body
        self.retryAfter = refusal.retryAfter.map { .seconds($0) }
    }
}

extension WebSocketRefusal: CustomStringConvertible {
    /// The status and the reason phrase, and the first line of a body that is text.
    public var description: String {
        let status = self.reason.isEmpty ? "\(self.status)" : "\(self.status) \(self.reason)"
        let text = String(buffer: self.body).prefix { !$0.isNewline }.prefix(200)
        let isShown = !text.isEmpty && !text.hasPrefix("<") && text.allSatisfy { $0.isASCII && $0 >= " " }
        return isShown ? "\(status): \(text)" : status
    }
}
