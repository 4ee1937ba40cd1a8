// SPDX-License-Identifier: Apache-2.0
package import HHSocket
import NIOCore

extension MessageWire {
    /// The frames that a ``MockWebSocketServer`` can send, right or wrong. A ``MockReaction`` makes them.
    public struct Output: Sendable {
        enum Source: Sendable {
            /// The received message.
            case echo
            case message(WebSocketMessage)
            /// A pong with the payload of the received ping.
            case pong
            /// A close frame with the code of the received one, unless one was sent before.
            case answeredClose
            case frame(WebSocketFrame)
        }

        var source: Source
        var fragmentLength: Int?
        var isCompressed = false
    }
}

extension MockReaction where Wire == MessageWire {
    init(_ source: MessageWire.Output.Source) {
        self.init(MessageWire.Output(source: source))
    }

    // MARK: Messages

    /// Sends the received message back.
    public static var echo: Self { Self(.echo) }

    /// Sends a text message.
    public static func text(_ text: String) -> Self { .message(WebSocketMessage(text)) }

    /// Sends a binary message.
    public static func binary(_ bytes: some Sequence<UInt8>) -> Self { .message(WebSocketMessage(bytes)) }

    /// Sends a message; a text may be one that is not UTF-8.
    package static func message(_ message: WebSocketMessage) -> Self { Self(.message(message)) }

    // MARK: Frames

    /// Sends a ping.
    package static func ping(_ payload: String = "") -> Self { .frame(.ping(ByteBuffer(string: payload))) }

    /// Sends a pong with the payload of the received ping; without a ping, an empty one.
    public static var pong: Self { Self(.pong) }

    /// Sends a close frame, with any code. The client's answer ends TCP.
    public static func close(code: UInt16 = 1_000, reason: String = "") -> Self {
        .frame(.close(code: code, reason: reason))
    }

    /// Answers a close frame with its code, unless a close frame was sent before, and ends TCP.
    static var answeredClose: Self { Self(.answeredClose).then(.disconnect) }

    /// Sends a frame, right or wrong.
    public static func frame(_ frame: WebSocketFrame) -> Self { Self(.frame(frame)) }

    // MARK: Adverbs

    /// Sends messages in frames that carry at most `length` bytes each.
    public func fragmented(length: Int) -> Self { self.changingOutput { $0.fragmentLength = max(1, length) } }

    /// Sends messages compressed, whether or not that was agreed on. An empty message is sent uncompressed.
    package func compressed() -> Self { self.changingOutput { $0.isCompressed = true } }
}
