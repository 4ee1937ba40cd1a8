// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// A unit of a language of messages: one that the user sends, or one that serves the link.
package protocol MessageUnit: Sendable {
    /// The user's bytes.
    var payload: ByteBuffer { get }
    /// Completed when the last byte was handed to the system; nil if nothing waits for that.
    var outcome: MessageOutcome? { get }
    /// Whether it is only for one connection: a heartbeat, or an answer to one.
    var isOfOneConnection: Bool { get }
}

/// The outcome of sending one message. Completes once.
package final class MessageOutcome: @unchecked Sendable {
    // Proof of Sendable: it is made elsewhere, and from its submission on accessed only on the socket's thread.
    private var completion: ((Result<Void, SocketError>) -> Void)?
    /// Whether the first byte was sent.
    package internal(set) var hasBegun = false
    /// Whether the last byte was sent.
    var isWhole = false
    /// The cost of the message in the line of those that wait for a connection; nil while it is not in it.
    package var waitingCost: Int?

    package init(_ completion: @escaping @Sendable (Result<Void, SocketError>) -> Void) {
        self.completion = completion
    }

    /// Whether its completion is still awaited.
    package var isOpen: Bool { self.completion != nil }

    package func complete(_ result: Result<Void, SocketError>) {
        self.completion.take()?(result)
    }
}
