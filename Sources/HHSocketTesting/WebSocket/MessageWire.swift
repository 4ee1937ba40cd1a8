// SPDX-License-Identifier: Apache-2.0
package import HHSocket
import NIOConcurrencyHelpers

/// The wire of a ``MockWebSocketServer``: messages and control frames of WebSockets.
public final class MessageWire: WebSocketWire {
    /// The text of a message.
    public typealias Key = String

    /// The rules that only WebSockets have.
    struct Rules {
        var ping = MockReaction<MessageWire>.pong
        var close = MockReaction<MessageWire>.answeredClose
    }

    let compression: WebSocketCompression?
    let rules = NIOLockedValueBox(Rules())

    init(_ compression: WebSocketCompression?) {
        self.compression = compression
    }

    /// A message or a control frame received from a client.
    public struct Received: Sendable, Hashable, SummarizedEvent {
        /// The number of its connection, counted from 0 in the order in which connections were accepted.
        public package(set) var connection: Int
        public package(set) var content: WebSocketContent

        /// The text of a text message; nil for anything else.
        public var text: String? { self.content.text }
        /// The message; nil for control frames and violations.
        package var message: WebSocketMessage? { self.content.message }

        var summary: String { "\(self.content.summary) on connection \(self.connection)" }
    }
}
