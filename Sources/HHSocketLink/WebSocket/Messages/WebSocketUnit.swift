// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// A frame or a message that a link sends.
package struct WebSocketUnit: MessageUnit {
    package enum Kind: Hashable, Sendable {
        case message(WebSocketMessageKind)
        case ping
        case pong
    }

    package var kind: Kind
    package var payload: ByteBuffer
    /// Completed when the last byte was handed to the system; nil if nothing waits for that.
    package var outcome: MessageOutcome?
    /// Whether it is a heartbeat, which is only for one connection.
    package var isBeat = false
    package var isOfOneConnection: Bool {
        if case .message = self.kind { self.isBeat } else { true }
    }

    /// Whether the payload was compressed.
    var isCompressed = false

    package init(_ kind: Kind, _ payload: ByteBuffer = ByteBuffer(), outcome: MessageOutcome? = nil) {
        self.kind = kind
        self.payload = payload
        self.outcome = outcome
    }
}
