package import NIOCore

/// A frame or a message that a link sends.
package struct WebSocketUnit: Sendable {
    package enum Kind: Hashable, Sendable {
        case message(WebSocketMessageKind)
        case ping
        case pong
    }

    package var kind: Kind
    package var payload: ByteBuffer
    /// Completed when the last byte was handed to the system; nil where nobody waits for that.
    package var outcome: WebSocketOutcome?
    /// Whether it is a heartbeat, which is for one connection alone.
    var isBeat = false
    /// Whether the payload was compressed.
    var isCompressed = false

    package init(_ kind: Kind, _ payload: ByteBuffer = ByteBuffer(), _ outcome: WebSocketOutcome? = nil) {
        self.kind = kind
        self.payload = payload
        self.outcome = outcome
    }
}

/// The outcome of sending one message. Completes once.
package final class WebSocketOutcome: @unchecked Sendable {
    // Proof of Sendable: it is made elsewhere, and from its submission on touched on the socket's thread alone.
    private var completion: ((Result<Void, SocketError>) -> Void)?
    /// Whether the first byte has left the link.
    var hasBegun = false
    /// Whether the last byte has left the link.
    var isWhole = false
    /// The cost of the message in the line of those that wait for a connection; nil while it is not in it.
    var waitingCost: Int?

    package init(_ completion: @escaping @Sendable (Result<Void, SocketError>) -> Void) {
        self.completion = completion
    }

    /// Whether somebody still waits.
    package var isOpen: Bool { self.completion != nil }

    package func complete(_ result: Result<Void, SocketError>) {
        self.completion.take()?(result)
    }
}
