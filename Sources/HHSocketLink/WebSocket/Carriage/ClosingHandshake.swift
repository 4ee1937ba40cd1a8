// SPDX-License-Identifier: Apache-2.0
/// The closing handshake of a WebSocket, and the end of TCP after it (RFC 6455, section 7). No I/O, no clock.
///
/// The server ends TCP first. Each side waits for the other no longer than ``patience``.
struct ClosingHandshake: Hashable, Sendable {
    enum Action: Hashable, Sendable {
        case send(WebSocketClose)
        /// Half-close TCP after all sent bytes.
        case closeOutput
        /// Close TCP once all bytes have been sent.
        case closeChannel
        /// Close TCP after ``patience``, unless it has ended by then.
        case awaitPeer
    }

    /// The time that each side waits for the other's close frame and its end of TCP, in seconds.
    static let patience: Int64 = 5

    private let role: WebSocketRole
    /// Whether our close frame was sent.
    private(set) var hasSent = false
    /// The peer's close frame.
    private(set) var received: WebSocketClose?
    /// Whether the peer's bytes are invalid, including any later close frame.
    private var isBroken = false
    private var inputHasEnded = false

    init(role: WebSocketRole) {
        self.role = role
    }

    /// We close. A close frame of the peer's is answered with its own code.
    mutating func close(_ close: WebSocketClose) -> [Action] {
        guard !self.hasSent else { return [] }
        self.hasSent = true
        var close = close
        if let received = self.received { close = WebSocketClose(code: received.code) }
        return [.send(close)] + self.next
    }

    /// Closes because of the peer's violation, after which nothing can be read.
    mutating func fail(_ close: WebSocketClose) -> [Action] {
        self.isBroken = true
        self.received = nil
        return self.close(close)
    }

    /// The peer's close frame has arrived. If ours was not sent, call ``close(_:)`` once the earlier messages have been
    /// answered.
    mutating func receive(_ close: WebSocketClose) -> [Action] {
        self.received = close
        return self.hasSent ? self.next : []
    }

    /// The peer has ended its direction of TCP.
    mutating func endInput() -> [Action] {
        self.inputHasEnded = true
        return self.hasSent ? self.next : []
    }

    /// The steps after our close frame.
    private var next: [Action] {
        if self.inputHasEnded || (self.received != nil && self.role == .server) { return [.closeChannel] }
        return self.isBroken ? [.closeOutput, .awaitPeer] : [.awaitPeer]
    }
}
